"""The packages to collect, their rows, and facts about them that no metadata has.

`table` names the rows: file and key of the gathered facts. `inside`: what to look up in a new wheel, the file with its
CUDA or the CUDA that its libraries are linked with. `needs`, `build` and `opens` come from the projects' documentation
and the wheels' file lists; the notes of each file name the source.
"""

from __future__ import annotations

from typing import Any

_NVCC = "nvcc of torch's CUDA major, gcc, ninja and --no-build-isolation"
_HOURS = f"{_NVCC}; each compiler job takes gigabytes of memory: limit them with MAX_JOBS"
_UNLISTED = "its page lists no torch for it: at least that of the release before it"
_STUB = (
    "the index has a stub: its build step downloads NVIDIA's own wheel from https://pypi.nvidia.com, "
    "which must be reachable"
)

_RAPIDS = {
    "title": "RAPIDS platform support (26.02 and 26.10), and its support notice 34: no Pascal from 24.02 on",
    "publisher": "RAPIDS",
    "url": "https://docs.rapids.ai/platform-support",
}
_TENSORRT: dict[str, Any] = {
    "cc_min": [("8.6", "8.6.99", "5.0"), ("10.0", "10.4.99", "7.0"), ("10.5", "", "7.5")],
    "documented": {
        "title": "TensorRT 10.5.0 (no Volta from it on) and 8.5.2 release notes, 10.1.0 support matrix (7.0 on)",
        "publisher": "NVIDIA",
        "url": "https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/release-notes-10/10.5.0.html",
    },
}
_RAPIDS_12 = {"major": "12", "cc_min": [("24.2", "", "7.0")], "driver_min": "535", "documented": _RAPIDS}
_RAPIDS_13 = {"major": "13", "cc_min": [("25.10", "", "7.5")], "documented": _RAPIDS}

PACKAGES: dict[str, dict[str, Any]] = {
    "vllm": {
        "table": "vllm.vllm",
        "inside": "vllm",
        "needs": ["torch"],
        "cc_min": [("0", "0.14.99", "7.0"), ("0.21.0", "", "7.5")],
    },
    "sglang": {
        "table": "sglang.sglang",
        "needs": ["torch"],
        "whole": "srt",
        "kernels": {"sglang-kernel": "sglang.sglang_kernel", "sgl-kernel": "sglang.sgl_kernel"},
    },
    "tensorrt-llm": {
        "table": "tensorrt_llm.tensorrt_llm",
        "needs": ["torch"],
        "names_major": "nvidia-nccl",
        "cc_min": [("0.18.2", "", "8.0")],
        "documented": {
            "title": "TensorRT LLM: supported hardware, from Ampere on",
            "publisher": "NVIDIA",
            "url": "https://nvidia.github.io/TensorRT-LLM/supported-hardware.html",
        },
        "build": _STUB,
    },
    "unsloth": {"table": "trainers.unsloth", "needs": ["torch", "xformers"]},
    "trl": {"table": "trainers.trl", "needs": ["torch"]},
    "lightning": {"needs": ["torch"]},
    "pytorch-lightning": {"needs": ["torch"]},
    "deepspeed": {
        "table": "deepspeed.deepspeed",
        "needs": ["torch"],
        "build": "nvcc of torch's CUDA major, gcc and ninja: its operations are compiled at their first use",
    },
    "transformers": {"table": "trainers.transformers"},
    "accelerate": {"table": "trainers.accelerate"},
    "peft": {"table": "trainers.peft"},
    "whisperx": {"table": "ctranslate2.whisperx"},
    "faster-whisper": {"table": "ctranslate2.faster_whisper", "opens": ("0", "12", "nvidia-cublas-cu12")},
    "ctranslate2": {
        "table": "ctranslate2.ctranslate2",
        "opens": ("4.0", "12", "nvidia-cublas-cu12"),
        "opens_too": [("4.0", "4.4.99", "nvidia-cudnn-cu12==8.*"), ("4.5", "4.6.2", "nvidia-cudnn-cu12==9.*")],
    },
    "xformers": {"table": "xformers.xformers", "inside": "xformers", "needs": ["torch"], "build": _HOURS},
    "flash-attn": {
        "table": "flash_attn.flash_attn_index",
        "needs": ["torch"],
        "build": _HOURS,
        "cc_min": [("2", "", "8.0")],
    },
    "flashinfer-python": {
        "table": "flashinfer.flashinfer_python",
        "needs": ["torch"],
        "cc_min": [("0.5.2", "", "7.5")],
    },
    "bitsandbytes": {
        "table": "bitsandbytes.bitsandbytes",
        "inside": "bitsandbytes",
        "needs": ["torch"],
        "cc_min": [("0.48.0", "", "6.0")],
    },
    "transformer-engine": {
        "table": "transformer_engine.transformer_engine",
        "extras": ["core_cu12", "core_cu13"],
        "cc_min": [("2.5.0", "", "8.0")],
    },
    "transformer-engine-torch": {
        "table": "transformer_engine.torch",
        "needs": ["torch"],
        "build": f"{_NVCC}, and the headers of cuDNN 9.3 or newer",
        "cc_min": [("2.8.0", "", "8.0")],
        "documented": {
            "title": "package index METADATA of transformer-engine",
            "publisher": "Python Package Index",
            "url": "https://pypi.org/project/transformer-engine/",
        },
    },
    "torch-tensorrt": {"table": "tensorrt.torch_tensorrt", "inside": "libraries", "needs": ["torch"]},
    "torchao": {"table": "torch_addons.torchao", "inside": "libraries", "needs": ["torch"]},
    "torchcodec": {
        "table": "torch_addons.torchcodec",
        "inside": "libraries",
        "needs": ["torch"],
        "torch": [
            ("0.0.3", "0.0.3", "==2.4.*"),
            ("0.1", "0.1.99", "==2.5.*"),
            ("0.2", "0.2.99", "==2.6.*"),
            ("0.3", "0.5.99", "==2.7.*"),
            ("0.6", "0.7.99", "==2.8.*"),
            ("0.8", "0.9.99", "==2.9.*"),
            ("0.10", "0.10.99", "==2.10.*"),
            ("0.11", "0.11.99", "==2.11.*"),
            ("0.12", "0.16.99", ">=2.11"),
        ],
        "documented": {
            "title": "TorchCodec: compatibility with torch versions",
            "publisher": "PyTorch",
            "url": "https://pypi.org/project/torchcodec/",
        },
    },
    "fbgemm-gpu": {
        "table": "torch_addons.fbgemm_gpu",
        "inside": "libraries",
        "needs": ["torch"],
        "torch": [
            ("1.1", "1.1.99", "==2.6.*"),
            ("1.2", "1.2.99", "==2.7.*"),
            ("1.3", "1.3.99", ">=2.7", _UNLISTED),
            ("1.4", "1.4.99", "==2.9.*"),
            ("1.5", "1.5.99", "==2.10.*"),
            ("1.6", "1.99", ">=2.10", _UNLISTED),
        ],
        "documented": {
            "title": "FBGEMM releases: the torch that each corresponds to; none is sure to work with an older one",
            "publisher": "PyTorch",
            "url": "https://docs.pytorch.org/FBGEMM/general/Releases.html",
        },
    },
    "mamba-ssm": {"table": "torch_addons.mamba_ssm", "needs": ["torch"], "build": _HOURS},
    "causal-conv1d": {"table": "torch_addons.causal_conv1d", "needs": ["torch"], "build": _HOURS},
    "triton": {
        "table": "triton.triton",
        "cc_min": [("2.0.0", "", "7.0")],
        "documented": {
            "title": "torch/_dynamo/exc.py: the GPU is too old for the Triton compiler below compute capability 7.0",
            "publisher": "PyTorch",
            "url": "https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/exc.py",
        },
    },
    "tensorrt": {
        **_TENSORRT,
        "table": "tensorrt.tensorrt",
        "names_major": "tensorrt",
        "build": _STUB,
    },
    "tensorrt-cu12": {
        **_TENSORRT,
        "table": "tensorrt.tensorrt_cu12",
        "build": _STUB,
        "major": "12",
    },
    "tensorrt-cu13": {
        **_TENSORRT,
        "table": "tensorrt.tensorrt_cu13",
        "build": _STUB,
        "major": "13",
    },
    "onnxruntime-gpu": {
        "table": "onnxruntime_gpu.onnxruntime_gpu",
        "until": ("1.18.1", "11"),
        "inside": "onnxruntime",
        "extras": ["cuda", "cudnn"],
    },
    "llama-cpp-python": {
        "table": "llama_cpp_python.llama_cpp_python",
        "build": "nvcc, gcc, cmake and CMAKE_ARGS=-DGGML_CUDA=on; without that it is built for the CPU alone",
    },
    "numba-cuda": {"table": "numba_cuda.numba_cuda", "extras": ["cu11", "cu12", "cu13"]},
    "cudf-cu12": {"table": "rapids.cudf_cu12"} | _RAPIDS_12,
    "cudf-cu13": {"table": "rapids.cudf_cu13"} | _RAPIDS_13,
    "cuml-cu12": {"table": "rapids.cuml_cu12"} | _RAPIDS_12,
    "cuml-cu13": {"table": "rapids.cuml_cu13"} | _RAPIDS_13,
    "nvidia-dali-cuda120": {"table": "other_gpu_wheels.dali_cuda120", "major": "12"},
    "nvidia-dali-cuda130": {"table": "other_gpu_wheels.dali_cuda130", "major": "13"},
    "xgboost": {"table": "other_gpu_wheels.xgboost", "brings_major": "nvidia-nccl"},
}
