"""The table of packages and their smoke tests, for the host that runs them and the controller that judges them.

Packages go by their names on the Python index. A test is a function in a module next to this one that yields trials:
small operations, each with an expected result computed in another way.
"""

from typing import Any, Dict, NamedTuple, Optional, Tuple


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


def _smoke(package: str, family: str, does: str, **how: Any) -> Smoke:
    module = how.get("module", package.replace("-", "_"))
    place = f"smokes_of_{family}", module.replace(".", "_")
    flags = bool(how.get("apart")), bool(how.get("engine"))
    return Smoke(package, how.get("title", package), module, *place, does, how.get("deadline", 120), *flags)


_ATTENTION = "attention in half precision against plain attention in double precision"
_FRAME = "the sums of a group-by against NumPy's"
_REGRESSION = "a regression against NumPy's"
_PIPELINE = "a pipeline's arithmetic against NumPy"
_TOKENS = "32 tokens of a tiny random model, each judged by the same model on the CPU"

SMOKES: Tuple[Smoke, ...] = (
    _smoke("torchvision", "torch", "non-maximum suppression and ROI align against the CPU's"),
    _smoke("torchaudio", "torch", "a spectrogram against NumPy's FFT, a resampling against the CPU's"),
    _smoke("triton", "triton", "a compiled kernel with a matrix product against torch", title="Triton"),
    _smoke("transformers", "torch", "the forward pass of a tiny random model against the CPU's"),
    _smoke("accelerate", "torch", "a dispatched model's forward pass against the CPU's"),
    _smoke("peft", "torch", "a LoRA layer against its formula in double precision", title="PEFT"),
    _smoke("torchao", "torch", "a layer with 8-bit weights against the exact product, within the quantisation's error"),
    _smoke("fbgemm-gpu", "torch", "a cumulative sum and a permutation against NumPy's", title="FBGEMM"),
    _smoke(
        "torch-tensorrt",
        "torch",
        "a compiled layer against the exact product",
        title="Torch-TensorRT",
        deadline=300,
        apart=True,
    ),
    _smoke(
        "deepspeed",
        "torch",
        "a step of the fused Adam, built at first use, against torch's on the CPU",
        title="DeepSpeed",
        deadline=300,
        apart=True,
    ),
    _smoke("xformers", "kernels", _ATTENTION, title="xFormers"),
    _smoke("flash-attn", "kernels", _ATTENTION, title="FlashAttention"),
    _smoke(
        "flashinfer-python",
        "kernels",
        _ATTENTION + "; its kernel is compiled at first use",
        title="FlashInfer",
        module="flashinfer",
        deadline=300,
    ),
    _smoke(
        "bitsandbytes",
        "kernels",
        "layers with 8-bit and 4-bit weights against the exact product, within the quantisation's error",
    ),
    _smoke(
        "transformer-engine-torch",
        "kernels",
        "a linear layer and a normalisation against the same in double precision",
        title="Transformer Engine",
        module="transformer_engine",
    ),
    _smoke("mamba-ssm", "kernels", "a selective scan against its recurrence in double precision", title="Mamba"),
    _smoke("causal-conv1d", "kernels", "a causal convolution against NumPy's in double precision"),
    _smoke(
        "onnxruntime-gpu",
        "runtimes",
        "a small graph on the CUDA provider, which may not fall back to the CPU, against NumPy",
        title="ONNX Runtime",
        module="onnxruntime",
    ),
    _smoke("tensorrt", "runtimes", "a small network, built and run, against NumPy", title="TensorRT", deadline=300),
    _smoke(
        "ctranslate2", "runtimes", "the forward pass of a tiny random decoder against the CPU's", title="CTranslate2"
    ),
    _smoke(
        "llama-cpp-python",
        "runtimes",
        "whether the build can put layers on a GPU: one for the CPU computes right and slowly",
        module="llama_cpp",
    ),
    _smoke(
        "numba-cuda",
        "arrays",
        "a compiled kernel with shared memory against NumPy",
        title="Numba CUDA",
        module="numba.cuda",
    ),
    _smoke("cudf-cu12", "arrays", _FRAME, title="cuDF", module="cudf", apart=True),
    _smoke("cudf-cu13", "arrays", _FRAME, title="cuDF", module="cudf", apart=True),
    _smoke("cuml-cu12", "arrays", _REGRESSION, title="cuML", module="cuml", apart=True),
    _smoke("cuml-cu13", "arrays", _REGRESSION, title="cuML", module="cuml", apart=True),
    _smoke("xgboost", "arrays", "a trained tree against one trained on the CPU", title="XGBoost"),
    _smoke("nvidia-dali-cuda120", "arrays", _PIPELINE, title="DALI", module="nvidia.dali", apart=True),
    _smoke("nvidia-dali-cuda130", "arrays", _PIPELINE, title="DALI", module="nvidia.dali", apart=True),
    _smoke("vllm", "engines", _TOKENS, title="vLLM", deadline=300, apart=True, engine=True),
    _smoke("sglang", "engines", _TOKENS, title="SGLang", deadline=300, apart=True, engine=True),
)

SAME: Dict[str, str] = {"tensorrt-cu12": "tensorrt", "tensorrt-cu13": "tensorrt", "faster-whisper": "ctranslate2"}
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
