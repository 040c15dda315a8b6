"""What the matrix holds: one Struct per kind of record, one file Struct per component.

`confidence` says who stands behind a record: `vendor` (the publisher's own document or package), `observed`
(measured, or read in a third party's copy of the vendor's data), `inferred` (derived, or from secondary sources only).
`sources` are keys into the file's `sources`. Versions are text as published; compute capabilities are text like "9.0".
"""

# Annotations are not postponed here: as text, every one would be compiled again at every start.
from typing import Annotated, Literal

from msgspec import Meta, Struct

Confidence = Literal["vendor", "observed", "inferred"]
Arch = Literal["x86_64", "aarch64"]
Day = Annotated[str, Meta(pattern=r"^([0-9]{4}-[0-9]{2}(-[0-9]{2})?|unknown)$")]
Version = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)*$")]
PackageVersion = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?$")]
Capability = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]$")]


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A document somebody can look up."""

    title: str
    publisher: str = ""
    url: str = ""
    seen: str = ""
    note: str = ""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every record carries."""

    sources: tuple[str, ...]
    confidence: Confidence
    note: str = ""


class Rule(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named rule that explanations, documentation and lints cite; `value` when it is a number or a list."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    text: str
    value: str | int | tuple[str, ...] | None = None


class MatrixFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The head of every file."""

    schema: str
    date: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    sources: dict[str, Source]
    rules: tuple[Rule, ...] = ()


# --- driver -----------------------------------------------------------------------------------------------------


class DriverBranch(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver branch and how long NVIDIA looks after it."""

    branch: int
    kind: Literal["LTSB", "PB", "NFB", "evaluation", "unknown"]
    cuda: Version | None
    """The CUDA version whose own driver this branch is; None when nobody published one."""
    eol: Day
    ended: bool = False
    """Known to be past its end of life, also when nobody published the day."""
    architectures: tuple[str, ...]
    latest: Version | None = None
    first_date: str = ""
    latest_date: str = ""


class DriverVersion(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver release; `windows` ones are kept only to say so when somebody asks for them."""

    version: Version
    branch: int
    date: str = ""
    platform: Literal["linux", "windows"] = "linux"
    beta: bool = False


class Architecture(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU architecture: its driver and toolkit window, and which kernel module flavours can drive it."""

    name: str
    capabilities: tuple[Capability, ...]
    min_branch: int | None = None
    last_branch: int | None = None
    first_cuda: str = ""
    last_cuda: str = ""
    open_module: Literal["unsupported", "supported", "required", "unknown"]


class DriverFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """driver.json."""

    branches: tuple[DriverBranch, ...]
    versions: tuple[DriverVersion, ...]
    architectures: tuple[Architecture, ...]
    windows_numbers: dict[Version, Version]
    """Linux version → the number of the same release on Windows."""
    never_released: tuple[Version, ...]
    """Numbers that circulate in tutorials and that nobody published."""


# --- CUDA -------------------------------------------------------------------------------------------------------


class CudaRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CUDA toolkit release and the driver it was built with."""

    version: Version
    minor: Version
    label: str
    driver_branch: int
    driver: Version | None = None
    """The driver that the release notes list, else the installer's; None when only a branch is known."""
    installer_driver: Version | None = None
    wheel: str = ""
    """Version of the `cuda-toolkit` wheel metapackage."""
    system: bool = True
    """Whether a Linux system package or installer of it exists (false: previews, wheel-only releases)."""


class CudaMajor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest driver of minor-version compatibility."""

    major: int
    min_driver: Version


class Toolchain(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a toolkit's compiler targets and which host compilers it takes."""

    minor: Version
    cc_min: Capability
    cc_max: Capability | None = None
    targets: tuple[Capability, ...] = ()
    """Measured SASS targets; empty where nobody measured and the range is all there is."""
    ptx: str = ""
    """PTX version of this toolkit, such as "9.0"; empty when unknown."""
    gcc_max: int | None = None
    clang_max: int | None = None


class WheelPins(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The component wheels behind one version of the `cuda-toolkit` metapackage."""

    wheel: str
    pins: dict[str, str]


class CudaFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """cuda.json."""

    releases: tuple[CudaRelease, ...]
    majors: tuple[CudaMajor, ...]
    toolchains: tuple[Toolchain, ...]
    wheel_pins: tuple[WheelPins, ...]


# --- libraries --------------------------------------------------------------------------------------------------


class CudnnSupport(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a cuDNN support matrix."""

    version: Version
    cuda: tuple[Version, ...]
    cc_min: Capability | None = None
    cc_max: Capability | None = None
    min_driver: Version | None = None
    general: bool = True
    """False for a row that speaks of one new platform only: other versions never lean on it."""


class CudnnRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cuDNN version and the CUDA majors it has wheels (or packages) for."""

    version: Version
    cuda_majors: tuple[int, ...]
    wheels: tuple[int, ...] = ()
    """CUDA majors with a wheel; the others exist as system packages only."""


class CudnnFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """cudnn.json."""

    support: tuple[CudnnSupport, ...]
    releases: tuple[CudnnRelease, ...]


class NcclBuild(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One build of NCCL: a wheel for a CUDA major or a package for a CUDA minor."""

    cuda: Version
    """CUDA it was built with."""
    kind: Literal["wheel", "package"]
    version: str
    """The version as its package manager prints it: 2.26.2.post1, 2.30.7-1+cuda13.3."""
    targets: tuple[Capability, ...] = ()
    ptx: tuple[Capability, ...] = ()


class NcclRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An NCCL version with its builds."""

    version: Version
    date: str = ""
    builds: tuple[NcclBuild, ...] = ()


class NcclFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """nccl.json."""

    releases: tuple[NcclRelease, ...]


# --- frameworks -------------------------------------------------------------------------------------------------


class ArchCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The GPU code inside a build for one CPU architecture."""

    targets: tuple[Capability, ...]
    ptx: tuple[Capability, ...] = ()
    confidence: Confidence = "vendor"
    sources: tuple[str, ...] = ()


class TorchBuild(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One torch wheel family: a release for one CUDA version."""

    version: Version
    variant: Annotated[str, Meta(pattern=r"^cu[0-9]+$")]
    cuda: Version
    default: bool
    """Whether PyPI serves this build on Linux x86_64."""
    status: Literal["stable", "experimental", "legacy", "lts", "unlisted"]
    code: dict[Arch, ArchCode] | None
    """None: nobody knows what it was built for, so it is never chosen."""
    cudnn: Version | None = None
    nccl: Version | None = None
    libs_confidence: Confidence = "vendor"


class TorchRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all builds of a torch release share."""

    version: Version
    date: str
    requires_python: str
    pythons: tuple[str, ...]
    platform_tag: str
    glibc: Version
    aarch64_default: str = ""
    """Variant that PyPI serves on aarch64; empty: a CPU build or none."""
    companions: dict[str, str]
    """torchvision, torchaudio, triton versions that belong to it."""
    pins: dict[str, str]
    """Requirements of the PyPI build (name → specifier or version)."""


class TorchFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """torch.json."""

    releases: tuple[TorchRelease, ...]
    builds: tuple[TorchBuild, ...]


class CupyRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CuPy wheel: a package name carries the CUDA it is for."""

    package: str
    version: PackageVersion
    date: str = ""
    cuda: tuple[Version, ...]
    """CUDA minors it was tested with."""
    pythons: dict[Arch, tuple[str, ...]]
    cc_min: Capability
    cc_max: Capability | None = None
    nccl: str = ""
    numpy: str = ""
    ctk_extra: bool = False
    """Whether `[ctk]` brings the CUDA runtime as wheels."""
    excluded: str = ""
    """Why this release is never chosen."""


class CupyFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """cupy.json."""

    releases: tuple[CupyRelease, ...]


class TensorflowRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TensorFlow release and the CUDA stack it was tested with."""

    version: PackageVersion
    date: str = ""
    cuda: Version
    cudnn: Version
    pythons: dict[Arch, tuple[str, ...]]
    code: ArchCode
    pins: dict[str, str] = {}
    """Requirements of the and-cuda extra; empty before 2.14."""
    glibc: Version = "2.17"
    excluded: str = ""


class TensorflowFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """tensorflow.json."""

    releases: tuple[TensorflowRelease, ...]


class JaxRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A JAX release for one CUDA major (`jax[cuda12]`, `jax[cuda13]`)."""

    version: PackageVersion
    date: str = ""
    extra: str
    cuda_major: int
    min_driver: Version
    min_cc: Capability
    pythons: tuple[str, ...]
    code: ArchCode
    pins: dict[str, str]
    glibc: Version = "2.17"
    excluded: str = ""


class JaxFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """jax.json."""

    releases: tuple[JaxRelease, ...]


# --- hardware, systems, compatibility packages --------------------------------------------------------------------


class Gpu(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU product."""

    name: str
    aliases: tuple[str, ...] = ()
    ids: tuple[Annotated[str, Meta(pattern=r"^10de:[0-9a-f]{4}$")], ...] = ()
    subsystems: tuple[str, ...] = ()
    """Subsystem ids (vendor:device) that tell it from another product with the same id."""
    arch: str
    cc: Capability
    kind: Literal["datacenter", "rtx-pro", "geforce", "laptop", "embedded", "jetson", "workstation-soc", "vgpu"]
    only_cpu: Arch | None = None
    nvswitch_baseboard: bool = False
    open_required: bool = False
    """Takes the open modules only although its architecture takes both (Grace Hopper)."""
    min_driver: Version | None = None
    """First driver that names the product: a floor when we choose, a warning for a driver that is already there."""
    mig_min_driver: Version | None = None
    last_branch: int | None = None


class FabricSystem(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A system that needs (or must not have) fabric manager."""

    system: str
    gpu: str = ""
    gpus: int | None = None
    nvswitch_generation: int | None = None
    fabric_manager: bool


class GpuFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gpus.json."""

    gpus: tuple[Gpu, ...]
    fabric_systems: tuple[FabricSystem, ...]


class OsRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution release we can set up or look up."""

    id: str
    name: str
    family: Literal["ubuntu", "debian", "el", "amazon", "fedora", "azurelinux", "suse"]
    repo: str = ""
    """Directory of NVIDIA's repository; empty: NVIDIA has none."""
    arches: tuple[Arch, ...]
    python: str
    """Version of the distribution's python3, or "unknown"."""
    glibc: str
    """Version, or "unknown"."""
    cuda_min: Version | None = None
    cuda_max: Version | None = None
    """The CUDA releases that NVIDIA's directory for it is known to hold; None: open."""


class OsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """os.json."""

    systems: tuple[OsRelease, ...]


class CompatPackage(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cuda-compat package and the driver branches it may stand on."""

    cuda: Version
    built_from: int | None = None
    base_branches: tuple[int, ...]
    refused_branches: tuple[int, ...] = ()


class ForwardFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """forward_compat.json."""

    packages: tuple[CompatPackage, ...]


class VgpuBranch(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vGPU software release line and its driver branch."""

    vgpu: str
    branch: int


class VgpuRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vGPU software release: the driver of the guest, and of the KVM host, whose number differs."""

    vgpu: Version
    guest: Version
    host: Version | None = None
    date: str = ""


class VgpuFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vgpu.json."""

    branches: tuple[VgpuBranch, ...]
    releases: tuple[VgpuRelease, ...]
    guest_subsystems: dict[str, str] = {}
    """Subsystem ids known to be a vGPU guest device → what they are."""
