"""The table of packages and their smoke tests, for the host that runs them and the controller that judges them.

Packages go by their names on the Python index. A test is a function in a module next to this one that yields trials:
small operations, each with an expected result computed in another way.
"""

from typing import Dict, NamedTuple, Optional, Tuple


class Smoke(NamedTuple):
    """The smoke test of a package."""

    package: str  # its name on the index
    title: str  # its usual spelling
    module: str  # the module to import
    script: str  # the module next to this one with the test
    function: str  # the test in it
    does: str  # the operation, and what it is compared with
    deadline: float  # seconds
    apart: bool  # needs a process per GPU: the library uses only one GPU
    engine: bool  # allocates all free memory: runs when the others are done


def _smoke(package: str, title: str, module: str, place: str, does: str, **how: float) -> Smoke:
    script, _, function = place.partition(":")
    apart, engine = bool(how.get("apart")), bool(how.get("engine"))
    return Smoke(package, title, module, script, function, does, how.get("deadline", 120), apart, engine)


_ATTENTION = "attention in half precision against plain attention in double precision"
_FRAME = "the sums of a group-by against NumPy's"

SMOKES: Tuple[Smoke, ...] = (
    _smoke(
        "torchvision",
        "torchvision",
        "torchvision",
        "smokes_of_torch:torchvision",
        "non-maximum suppression and ROI align against the CPU's",
    ),
    _smoke(
        "torchaudio",
        "torchaudio",
        "torchaudio",
        "smokes_of_torch:torchaudio",
        "a spectrogram against NumPy's FFT, a resampling against the CPU's",
    ),
    _smoke(
        "triton", "Triton", "triton", "smokes_of_triton:triton", "a compiled kernel with a matrix product against torch"
    ),
    _smoke(
        "transformers",
        "transformers",
        "transformers",
        "smokes_of_torch:transformers",
        "the forward pass of a tiny random model against the CPU's",
    ),
    _smoke(
        "accelerate",
        "accelerate",
        "accelerate",
        "smokes_of_torch:accelerate",
        "a dispatched model's forward pass against the CPU's",
    ),
    _smoke("peft", "PEFT", "peft", "smokes_of_torch:peft", "a LoRA layer against its formula in double precision"),
    _smoke(
        "torchao",
        "torchao",
        "torchao",
        "smokes_of_torch:torchao",
        "a layer with 8-bit weights against the exact product, within the quantisation's error",
    ),
    _smoke(
        "fbgemm-gpu",
        "FBGEMM",
        "fbgemm_gpu",
        "smokes_of_torch:fbgemm_gpu",
        "a cumulative sum and a permutation against NumPy's",
    ),
    _smoke(
        "torch-tensorrt",
        "Torch-TensorRT",
        "torch_tensorrt",
        "smokes_of_torch:torch_tensorrt",
        "a compiled layer against the exact product",
        deadline=300,
        apart=True,
    ),
    _smoke(
        "deepspeed",
        "DeepSpeed",
        "deepspeed",
        "smokes_of_torch:deepspeed",
        "a step of the fused Adam, built at first use, against torch's on the CPU",
        deadline=300,
        apart=True,
    ),
    _smoke("xformers", "xFormers", "xformers", "smokes_of_kernels:xformers", _ATTENTION),
    _smoke("flash-attn", "FlashAttention", "flash_attn", "smokes_of_kernels:flash_attn", _ATTENTION),
    _smoke(
        "flashinfer-python",
        "FlashInfer",
        "flashinfer",
        "smokes_of_kernels:flashinfer",
        _ATTENTION + "; its kernel is compiled at first use",
        deadline=300,
    ),
    _smoke(
        "bitsandbytes",
        "bitsandbytes",
        "bitsandbytes",
        "smokes_of_kernels:bitsandbytes",
        "layers with 8-bit and 4-bit weights against the exact product, within the quantisation's error",
    ),
    _smoke(
        "transformer-engine-torch",
        "Transformer Engine",
        "transformer_engine",
        "smokes_of_kernels:transformer_engine",
        "a linear layer and a normalisation against the same in double precision",
    ),
    _smoke(
        "mamba-ssm",
        "Mamba",
        "mamba_ssm",
        "smokes_of_kernels:mamba_ssm",
        "a selective scan against its recurrence in double precision",
    ),
    _smoke(
        "causal-conv1d",
        "causal-conv1d",
        "causal_conv1d",
        "smokes_of_kernels:causal_conv1d",
        "a causal convolution against NumPy's in double precision",
    ),
    _smoke(
        "onnxruntime-gpu",
        "ONNX Runtime",
        "onnxruntime",
        "smokes_of_runtimes:onnxruntime",
        "a small graph on the CUDA provider, which may not fall back to the CPU, against NumPy",
    ),
    _smoke(
        "tensorrt",
        "TensorRT",
        "tensorrt",
        "smokes_of_runtimes:tensorrt",
        "a small network, built and run, against NumPy",
        deadline=300,
    ),
    _smoke(
        "ctranslate2",
        "CTranslate2",
        "ctranslate2",
        "smokes_of_runtimes:ctranslate2",
        "the forward pass of a tiny random decoder against the CPU's",
    ),
    _smoke(
        "llama-cpp-python",
        "llama-cpp-python",
        "llama_cpp",
        "smokes_of_runtimes:llama_cpp",
        "whether the build can put layers on a GPU: one for the CPU computes right and slowly",
    ),
    _smoke(
        "numba-cuda",
        "Numba CUDA",
        "numba.cuda",
        "smokes_of_arrays:numba_cuda",
        "a compiled kernel with shared memory against NumPy",
    ),
    _smoke("cudf-cu12", "cuDF", "cudf", "smokes_of_arrays:cudf", _FRAME, apart=True),
    _smoke("cudf-cu13", "cuDF", "cudf", "smokes_of_arrays:cudf", _FRAME, apart=True),
    _smoke("cuml-cu12", "cuML", "cuml", "smokes_of_arrays:cuml", "a regression against NumPy's", apart=True),
    _smoke("cuml-cu13", "cuML", "cuml", "smokes_of_arrays:cuml", "a regression against NumPy's", apart=True),
    _smoke(
        "xgboost", "XGBoost", "xgboost", "smokes_of_arrays:xgboost", "a trained tree against one trained on the CPU"
    ),
    _smoke(
        "nvidia-dali-cuda120",
        "DALI",
        "nvidia.dali",
        "smokes_of_arrays:dali",
        "a pipeline's arithmetic against NumPy",
        apart=True,
    ),
    _smoke(
        "nvidia-dali-cuda130",
        "DALI",
        "nvidia.dali",
        "smokes_of_arrays:dali",
        "a pipeline's arithmetic against NumPy",
        apart=True,
    ),
    _smoke(
        "vllm",
        "vLLM",
        "vllm",
        "smokes_of_engines:vllm",
        "32 tokens of a tiny random model, each judged by the same model on the CPU",
        deadline=300,
        apart=True,
        engine=True,
    ),
    _smoke(
        "sglang",
        "SGLang",
        "sglang",
        "smokes_of_engines:sglang",
        "32 tokens of a tiny random model, each judged by the same model on the CPU",
        deadline=300,
        apart=True,
        engine=True,
    ),
)

SAME: Dict[str, str] = {
    "tensorrt-cu12": "tensorrt",
    "tensorrt-cu13": "tensorrt",
    "faster-whisper": "ctranslate2",
}
"""Packages that the test of another package covers."""

OTHERS: Dict[str, str] = {
    "tensorrt-llm": "its engine is not started; torch and tensorrt are tried where they are installed",
    "transformer-engine": "its part for torch is tried",
    "whisperx": "it computes through ctranslate2 and torch",
    "torchcodec": "it needs FFmpeg's libraries and a video",
    "lightning": "it computes through torch",
    "pytorch-lightning": "it computes through torch",
    "trl": "it computes through torch and transformers",
    "unsloth": "it computes through torch, triton and bitsandbytes",
}
"""Packages without a test of their own, and why."""


def find(package: str) -> Optional[Smoke]:
    """Return the test of a package, by its name on the index."""
    return next((smoke for smoke in SMOKES if smoke.package == package), None)
