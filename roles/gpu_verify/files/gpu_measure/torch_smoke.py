"""Test PyTorch on every GPU: is CUDA available, is it built for this GPU, are a product and a convolution right?

Runs as its own process in the interpreter that apply made; prints one JSON document.
"""

import os
import sys
import time
from typing import Any, Dict

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment


def look(torch: Any) -> Dict[str, Any]:
    answer: Dict[str, Any] = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "available": torch.cuda.is_available(),
        "gpus": [],
    }
    try:
        answer["arch_list"] = torch.cuda.get_arch_list()
    except Exception as failure:
        answer["arch_list"] = None
        answer["arch_error"] = str(failure)[:300]
    answer["cudnn"] = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    try:
        answer["nccl"] = list(torch.cuda.nccl.version())
    except Exception:
        answer["nccl"] = None
    if not answer["available"]:
        try:
            torch.cuda.init()
        except Exception as failure:
            answer["why_not"] = str(failure)[:1000]
        return answer
    answer["devices"] = torch.cuda.device_count()
    for index in range(answer["devices"]):
        answer["gpus"].append(one_gpu(torch, index))
    return answer


def one_gpu(torch: Any, index: int) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "index": index,
        "name": torch.cuda.get_device_name(index),
        "capability": "{}.{}".format(*torch.cuda.get_device_capability(index)),
    }
    try:
        device = f"cuda:{index}"
        generator = torch.Generator().manual_seed(int(time.time() * 1000) % 2**31)
        a, b = torch.randn(256, 512, generator=generator), torch.randn(512, 128, generator=generator)
        exact = a.double() @ b.double()
        got = (a.to(device) @ b.to(device)).double().cpu()
        found["product_error"] = float((got - exact).norm() / exact.norm())
        found["product_limit"] = 2e-3  # TF32 may be on
        image, weight = torch.randn(2, 8, 24, 24, generator=generator), torch.randn(16, 8, 3, 3, generator=generator)
        wanted = torch.nn.functional.conv2d(image.double(), weight.double())
        convolved = torch.nn.functional.conv2d(image.to(device), weight.to(device)).double().cpu()
        found["convolution_error"] = float((convolved - wanted).norm() / wanted.norm())
        found["convolution_limit"] = 5e-3  # cuDNN uses TF32 by default
    except Exception as failure:
        found["error"] = f"{type(failure).__name__}: {str(failure)[:1000]}"
    return found


if __name__ == "__main__":
    environment.print_framework("torch", look)
