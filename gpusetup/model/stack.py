"""The resolver's answer: one stack, the reason for each part, warnings, and the lines that install it."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.request import BUILT_FOR, COMPONENTS, PACKAGES, ModuleFlavour, Relation, Request, Requirement

Way = Literal["apply", "pip", "uv", "conda", "docker"]


class Install(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shell lines for each way, a Dockerfile for docker; empty if a way cannot install this stack."""

    apply: tuple[str, ...]
    pip: tuple[str, ...]
    uv: tuple[str, ...]
    conda: tuple[str, ...]
    docker: tuple[str, ...]
    companions: dict[str, str]
    """Packages released with the chosen torch (torchvision, torchaudio, triton) → their versions."""
    notes: dict[Way, str]
    """Remarks about a way, or why it has no lines."""

    def lines(self, way: Way) -> tuple[str, ...]:
        """Return the lines of one way."""
        lines: tuple[str, ...] = getattr(self, way)
        return lines


class MatrixStamp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The matrix that gave the answer."""

    date: str
    digest: str


class DriverChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver; `relation` is the weakest among the stack's CUDA runtimes."""

    version: str
    branch: str
    module: ModuleFlavour
    relation: Relation
    installed: bool = False


class CudaChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The toolkit on the system; `compat` names the cuda-compat package for forward compatibility."""

    version: str
    relation: Relation
    wheel: str = ""
    compat: str | None = None


class LibraryChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cuDNN or NCCL release on the system, and the CUDA it was built for."""

    version: str
    cuda: str


class TorchChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A torch build; `cuda`, `cudnn` and `nccl` are those inside the wheel."""

    version: str
    variant: str
    cuda: str
    relation: Relation
    index_url: str
    on_pypi: bool = False
    """Whether PyPI serves exactly this build."""
    cudnn: str | None = None
    nccl: str | None = None


class TensorflowChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TensorFlow release and the CUDA it was built and tested with."""

    version: str
    cuda: str
    cudnn: str
    relation: Relation
    extra: str | None = None
    limits: tuple[str, ...] = ()
    """Requirements that keep its libraries at releases that support the GPUs: `nvidia-cudnn-cu12<9.11`."""


class JaxChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A JAX release and its CUDA extra."""

    version: str
    cuda: str
    relation: Relation
    extra: str
    limits: tuple[str, ...] = ()
    """Like TensorFlow's `limits`."""


class CupyChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CuPy wheel; `ctk`: its `[ctk]` extra can install the CUDA runtime."""

    version: str
    package: str
    ctk: bool


class PackageChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A release of a package above the frameworks."""

    version: str
    kind: Literal["wheel", "source"] = "wheel"
    cuda: str | None = None
    """CUDA inside the wheel, if known: 13.0, or 13."""
    relation: Relation | None = None
    extras: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    """Packages that it loads at run time without requiring them."""
    build: str = ""
    """What building it needs."""


class PythonChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Pythons that every chosen package has wheels for; `version` if the request or the host decides it."""

    requires: str
    version: str | None = None


class Stack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"):
    """The requested components and those that they need."""

    driver: DriverChoice | None = None
    cuda: CudaChoice | None = None
    cudnn: LibraryChoice | None = None
    nccl: LibraryChoice | None = None
    torch: TorchChoice | None = None
    tensorflow: TensorflowChoice | None = None
    jax: JaxChoice | None = None
    cupy: CupyChoice | None = None
    python: PythonChoice | None = None
    cudas: tuple[CudaChoice, ...] = ()
    """Toolkits besides `cuda`, which is the default."""
    vllm: PackageChoice | None = None
    sglang: PackageChoice | None = None
    tensorrt_llm: PackageChoice | None = None
    unsloth: PackageChoice | None = None
    trl: PackageChoice | None = None
    lightning: PackageChoice | None = None
    pytorch_lightning: PackageChoice | None = None
    deepspeed: PackageChoice | None = None
    transformers: PackageChoice | None = None
    accelerate: PackageChoice | None = None
    peft: PackageChoice | None = None
    whisperx: PackageChoice | None = None
    faster_whisper: PackageChoice | None = None
    ctranslate2: PackageChoice | None = None
    xformers: PackageChoice | None = None
    flash_attn: PackageChoice | None = None
    flashinfer_python: PackageChoice | None = None
    bitsandbytes: PackageChoice | None = None
    transformer_engine: PackageChoice | None = None
    transformer_engine_torch: PackageChoice | None = None
    torch_tensorrt: PackageChoice | None = None
    torchao: PackageChoice | None = None
    torchcodec: PackageChoice | None = None
    fbgemm_gpu: PackageChoice | None = None
    mamba_ssm: PackageChoice | None = None
    causal_conv1d: PackageChoice | None = None
    tensorrt: PackageChoice | None = None
    tensorrt_cu12: PackageChoice | None = None
    tensorrt_cu13: PackageChoice | None = None
    onnxruntime_gpu: PackageChoice | None = None
    llama_cpp_python: PackageChoice | None = None
    numba_cuda: PackageChoice | None = None
    cudf_cu12: PackageChoice | None = None
    cudf_cu13: PackageChoice | None = None
    cuml_cu12: PackageChoice | None = None
    cuml_cu13: PackageChoice | None = None
    nvidia_dali_cuda120: PackageChoice | None = None
    nvidia_dali_cuda130: PackageChoice | None = None
    xgboost: PackageChoice | None = None
    torchvision: PackageChoice | None = None
    torchaudio: PackageChoice | None = None
    triton: PackageChoice | None = None

    def part(self, component: str) -> Any:
        """Return the choice for a component, by the component's name."""
        return getattr(self, component.replace("-", "_"))

    def packages(self) -> dict[str, PackageChoice]:
        """Return the packages above the frameworks."""
        return {name: chosen for name in PACKAGES if (chosen := self.part(name)) is not None}


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reason for the choice of a component; `source` is a document to look up."""

    component: str
    rule: str
    text: str
    source: str = ""


class TakenFor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a GPU's name was understood."""

    asked: str
    architecture: str
    compute_capability: str
    products: tuple[str, ...]


class Resolution(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole answer."""

    schema: str = "gpusetup/stack/1"
    ok: bool = True
    matrix: MatrixStamp
    request: Request
    stack: Stack
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...] = ()
    install: Install | None = None
    """The lines that install it; set only in printed answers."""
    gpus: tuple[TakenFor, ...] | UnsetType = UNSET
    """How the GPUs' names were understood; set only in printed answers."""

    def to_document(self) -> dict[str, Any]:
        """Return the answer as plain JSON types."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def build_of(name: str, chosen: Any) -> str:
    """Return the build of a chosen part, as `variant` of a requirement names it; empty where there is only one."""
    if name not in BUILT_FOR:
        return str(chosen.variant) if name == "torch" else ""
    return f"cu{chosen.package[len('cupy-cuda') :][:2] if name == 'cupy' else chosen.cuda.partition('.')[0]}"


def exact_requirements(stack: Stack) -> tuple[Requirement, ...]:
    """Return requirements that only this stack satisfies."""
    requirements = []
    for name in COMPONENTS:
        chosen = stack.part(name)
        if chosen is None or not chosen.version:
            continue
        variant = build_of(name, chosen) if name in ("torch", "jax") else ""
        beside = tuple(f"=={other.version}" for other in stack.cudas) if name == "cuda" else ()
        requirements.append(
            Requirement(component=name, specifier=f"=={chosen.version}", variant=variant, beside=beside)
        )
    return tuple(requirements)
