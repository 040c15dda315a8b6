"""Test TensorFlow on every GPU: are the GPUs listed, what was it built for, are a product and a convolution right?

Runs as its own process in the interpreter that apply made; prints one JSON document.
"""

import os
import sys
from typing import Any, Dict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # else TensorFlow allocates all memory
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment


def look(tensorflow: Any) -> Dict[str, Any]:
    import numpy

    build = tensorflow.sysconfig.get_build_info()
    answer: Dict[str, Any] = {
        "version": tensorflow.__version__,
        "built_with_cuda": tensorflow.test.is_built_with_cuda(),
        "build": {
            key: (list(value) if isinstance(value, (list, tuple)) else str(value)) for key, value in build.items()
        },
        "gpus": [],
    }
    devices = tensorflow.config.list_physical_devices("GPU")
    answer["devices"] = len(devices)
    generator = numpy.random.default_rng()
    a, b = generator.standard_normal((256, 512)), generator.standard_normal((512, 128))
    image, weight = generator.standard_normal((2, 24, 24, 8)), generator.standard_normal((3, 3, 8, 16))
    exact = a @ b
    with tensorflow.device("/CPU:0"):
        wanted = tensorflow.nn.conv2d(image, weight, 1, "VALID").numpy()
    for index in range(len(devices)):
        found: Dict[str, Any] = {"index": index}
        try:
            with tensorflow.device(f"/GPU:{index}"):
                got = tensorflow.linalg.matmul(a.astype("float32"), b.astype("float32")).numpy()
                convolved = tensorflow.nn.conv2d(image.astype("float32"), weight.astype("float32"), 1, "VALID").numpy()
            found["product_error"] = float(numpy.linalg.norm(got - exact) / numpy.linalg.norm(exact))
            found["product_limit"] = 2e-3
            found["convolution_error"] = float(numpy.linalg.norm(convolved - wanted) / numpy.linalg.norm(wanted))
            found["convolution_limit"] = 5e-3
        except Exception as failure:
            found["error"] = f"{type(failure).__name__}: {str(failure)[:1000]}"
        answer["gpus"].append(found)
    return answer


if __name__ == "__main__":
    environment.print_framework("tensorflow", look)
