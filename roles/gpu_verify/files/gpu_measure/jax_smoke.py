"""Test JAX on every GPU: does it find its CUDA plugin and the GPUs, are a product and a convolution right?

Runs as its own process in the interpreter that apply made; prints one JSON document.
"""

import os
import sys
from typing import Any, Dict

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX allocates three quarters of the memory
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment


def look(jax: Any) -> Dict[str, Any]:
    installed = environment.packages()
    answer: Dict[str, Any] = {
        "version": jax.__version__,
        "gpus": [],
        "plugins": {name: installed[name] for name in sorted(installed) if name.startswith(("jax-cuda", "jaxlib"))},
    }
    try:
        devices = jax.devices("cuda")
    except RuntimeError as failure:  # jax.devices() without a platform would silently return the CPU
        answer["why_not"] = str(failure)[:1000]
        return answer
    answer["devices"] = len(devices)
    for index, device in enumerate(devices):
        answer["gpus"].append(one_gpu(jax, index, device))
    return answer


def one_gpu(jax: Any, index: int, device: Any) -> Dict[str, Any]:
    import numpy

    found: Dict[str, Any] = {
        "index": index,
        "name": device.device_kind,
        "capability": str(getattr(device, "compute_capability", "")),
    }
    generator = numpy.random.default_rng()
    a, b = generator.standard_normal((256, 512)), generator.standard_normal((512, 128))
    image, weight = generator.standard_normal((2, 24, 24, 8)), generator.standard_normal((3, 3, 8, 16))
    wanted = sum(image[:, y : y + 22, x : x + 22] @ weight[y, x] for y in range(3) for x in range(3))
    try:

        def put(array: Any) -> Any:
            return jax.device_put(array.astype("float32"), device)

        got = numpy.asarray(put(a) @ put(b))
        convolved = numpy.asarray(
            jax.lax.conv_general_dilated(
                put(image), put(weight), (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )
        found["product_error"] = float(numpy.linalg.norm(got - a @ b) / numpy.linalg.norm(a @ b))
        found["product_limit"] = 2e-3  # TF32 is the default
        found["convolution_error"] = float(numpy.linalg.norm(convolved - wanted) / numpy.linalg.norm(wanted))
        found["convolution_limit"] = 5e-3
    except Exception as failure:
        found["error"] = f"{type(failure).__name__}: {str(failure)[:1000]}"
    return found


if __name__ == "__main__":
    environment.print_framework("jax", look)
