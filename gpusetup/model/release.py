"""Matrix records of releases and their vulnerabilities; one file Struct per component."""

# No `from __future__ import annotations` here: msgspec would compile every annotation again at each start.
from typing import Annotated, Literal

from msgspec import Struct, field

from gpusetup.model import whole
from gpusetup.model.record import Arch, Capability, Confidence, Day, MatrixFile, PackageVersion, Record, Version

# --- driver -----------------------------------------------------------------------------------------------------


class DriverBranch(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver branch and the end of its support."""

    branch: int
    kind: Literal["LTSB", "PB", "NFB", "evaluation", "unknown"]
    cuda: Version | None
    """The CUDA version that shipped with this branch; None if none was published."""
    eol: Day
    ended: bool = False
    """Known to be past its end of life, even if the day is unknown."""
    architectures: tuple[str, ...]
    latest: Version | None = None

    def has_ended(self, day: str) -> bool:
        """Return whether the branch's end of life is before the day; a month ends with its last day."""
        if self.ended or self.eol == "unknown":
            return self.ended
        return self.eol < day[: len(self.eol)]


class DriverVersion(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver release; `windows` ones are kept only to recognise their numbers."""

    version: Version
    branch: int
    date: str = ""
    platform: Literal["linux", "windows"] = "linux"
    beta: bool = False


class Architecture(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU architecture: its driver and toolkit range, and the kernel module flavours that support it."""

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
    """Numbers in tutorials that NVIDIA never published."""


# --- CUDA -------------------------------------------------------------------------------------------------------


class CudaRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CUDA toolkit release and the driver that shipped with it."""

    version: Version
    minor: Version
    label: str
    driver_branch: int
    driver: Version | None = None
    """The driver in the release notes, else the installer's; None if only a branch is known."""
    installer_driver: Version | None = None
    wheel: str = ""
    """Version of the `cuda-toolkit` wheel metapackage."""
    system: bool = True
    """Whether a Linux system package or installer of it exists (false: previews, wheel-only releases)."""


class CudaMajor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest driver for a CUDA major by minor-version compatibility."""

    major: int
    min_driver: Version


class Toolchain(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The capabilities that a toolkit's compiler targets, and the host compilers it supports."""

    minor: Version
    cc_min: Capability
    cc_max: Capability | None = None
    targets: tuple[Capability, ...] = ()
    """Measured SASS targets; empty if only the range is known."""
    ptx: str = ""
    """PTX version of this toolkit, such as "9.0"; empty when unknown."""
    gcc_max: int | None = None
    clang_max: int | None = None


class WheelPins(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The component wheels that one version of the `cuda-toolkit` metapackage pins."""

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
    """False for a row about one new platform only: it is never used for other versions."""


class CudnnRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cuDNN version and the CUDA majors it has wheels (or packages) for."""

    version: Version
    cuda_majors: tuple[int, ...]
    wheels: tuple[int, ...] = ()
    """CUDA majors with a wheel; the others have only system packages."""


class CudnnFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """cudnn.json."""

    support: tuple[CudnnSupport, ...]
    releases: tuple[CudnnRelease, ...]


class NcclBuild(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One build of NCCL: a wheel for a CUDA major or a package for a CUDA minor."""

    cuda: Version
    """The CUDA version it was built with."""
    kind: Literal["wheel", "package"]
    version: str
    """The version in the package manager's format: 2.26.2.post1, 2.30.7-1+cuda13.3."""
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
    variant: Annotated[str, whole(r"cu[0-9]+")]
    cuda: Version
    default: bool
    """Whether PyPI serves this build on Linux x86_64."""
    status: Literal["stable", "experimental", "legacy", "lts", "unlisted"]
    code: dict[Arch, ArchCode] | None
    """None: unknown, so the build is never chosen."""
    cudnn: Version | None = None
    nccl: Version | None = None
    libs_confidence: Confidence = "vendor"

    def code_on(self, arch: str) -> ArchCode | None:
        """Return the build's GPU code for a CPU; None if unknown or if there is no build for that CPU."""
        return next((code for name, code in (self.code or {}).items() if name == arch), None)


class TorchRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all builds of a torch release share."""

    version: Version
    date: str
    pythons: tuple[str, ...]
    glibc: Version
    aarch64_default: str = ""
    """Variant that PyPI serves on aarch64; empty: a CPU build or none."""
    companions: dict[str, str]
    """The versions of torchvision, torchaudio and triton released with it."""
    pins: dict[str, str]
    """Requirements of the PyPI build (name → specifier or version)."""


class TorchFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """torch.json."""

    releases: tuple[TorchRelease, ...]
    builds: tuple[TorchBuild, ...]


class CupyRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CuPy wheel; its package name contains the CUDA it is for."""

    package: str
    version: PackageVersion
    date: str = ""
    cuda: tuple[Version, ...]
    """CUDA minors that it was tested with."""
    pythons: dict[Arch, tuple[str, ...]]
    cc_min: Capability
    cc_max: Capability | None = None
    nccl: str = ""
    numpy: str = ""
    ctk_extra: bool = False
    """Whether its extra `[ctk]` installs the CUDA runtime as wheels."""
    excluded: str = ""
    """Why this release is never chosen."""


class CupyFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """cupy.json."""

    releases: tuple[CupyRelease, ...]


class TensorflowRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TensorFlow release and the CUDA and cuDNN it was tested with."""

    version: PackageVersion
    date: str = ""
    cuda: Version
    cudnn: Version
    pythons: dict[Arch, tuple[str, ...]]
    code: ArchCode
    pins: dict[str, str] = field(default_factory=dict)
    """Requirements of the and-cuda extra; empty before 2.14."""
    glibc: Version = "2.17"
    excluded: str = ""
    fails_on: tuple[Capability, ...] = ()
    """Capabilities (with later minors of the same major) on which it fails, although its PTX covers them."""


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


class CompatPackage(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cuda-compat package and the driver branches it works on."""

    cuda: Version
    base_branches: tuple[int, ...]


class ForwardFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """forward_compat.json."""

    packages: tuple[CompatPackage, ...]


Secured = Literal["driver", "cuda", "container-toolkit", "dcgm", "dcgm-exporter"]


class Bulletin(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vulnerabilities of a component that the same releases fix: one part of an NVIDIA bulletin."""

    component: Secured
    date: str
    cves: dict[str, float]
    """CVE → CVSS base score."""
    fixed: dict[str, Version]
    """Driver branch → its first fixed release; for other components "" → the first fixed release."""


class SecurityFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """security.json."""

    bulletins: tuple[Bulletin, ...]
