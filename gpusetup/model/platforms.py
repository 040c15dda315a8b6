"""Matrix records of GPUs, distributions and vGPU releases; one file Struct each."""

# No `from __future__ import annotations` here: msgspec would compile every annotation again at each start.
from typing import Annotated, Literal

from msgspec import Struct, field

from gpusetup.model import whole
from gpusetup.model.record import Arch, Capability, MatrixFile, Record, Version


class Gpu(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU product."""

    name: str
    aliases: tuple[str, ...] = ()
    ids: tuple[Annotated[str, whole(r"10de:[0-9a-f]{4}")], ...] = ()
    subsystems: tuple[str, ...] = ()
    """Subsystem ids (vendor:device) that distinguish it from another product with the same id."""
    arch: str
    cc: Capability
    kind: Literal["datacenter", "rtx-pro", "geforce", "laptop", "embedded", "jetson", "workstation-soc", "vgpu"]
    only_cpu: Arch | None = None
    nvswitch_baseboard: bool = False
    open_required: bool = False
    """Needs the open modules although its architecture supports both flavours (Grace Hopper)."""
    min_driver: Version | None = None
    """First driver that lists the product: a lower bound for a chosen driver, a warning for an installed one."""
    mig_min_driver: Version | None = None
    last_branch: int | None = None


class GpuFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gpus.json."""

    gpus: tuple[Gpu, ...]
    not_covered: dict[str, str] = field(default_factory=dict)
    """What devices are that gpusetup has no driver for → a pattern for their names."""


class PackagedPython(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Python that a distribution packages besides its own, sufficient to create an environment with pip."""

    version: Annotated[str, whole(r"3\.[0-9]+")]
    packages: tuple[str, ...]
    path: str
    """The path of the interpreter."""
    since: str = ""
    """First minor release of the distribution that has it; empty: all, or unknown."""
    prerelease: bool = False
    """The packaged version is a pre-release: used only on request."""


class OsRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution release that gpusetup can set up or look up."""

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
    """The range of CUDA releases in NVIDIA's directory for it; None: no known limit."""
    last_branch: int | None = None
    """The newest driver branch before the one whose guide no longer lists it."""
    pythons: tuple[PackagedPython, ...] = ()
    """Packages of other Pythons, the preferred one first."""

    def packaged(self, version: str) -> PackagedPython | None:
        """Return the package of a Python other than the distribution's own, if there is one."""
        return next((row for row in self.pythons if row.version == version), None)


class OsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """os.json."""

    systems: tuple[OsRelease, ...]
    said_as: dict[str, str] = field(default_factory=dict)
    """Other name → the name in an id."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Unsupported system → what to do there."""
    bases: dict[str, str] = field(default_factory=dict)
    """Derivative → the distribution whose packages it uses."""


class VgpuBranch(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vGPU software release line and its driver branch."""

    vgpu: str
    branch: int


class VgpuRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vGPU software release: the driver version of guests, and that of KVM hosts, which differs."""

    vgpu: Version
    guest: Version
    host: Version | None = None
    date: str = ""


Cloud = Literal["azure", "google", "aws", "alibaba"]


class CloudFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cloud's file with the guest driver of one release."""

    vgpu: Version
    url: str
    sha256: str = ""


class VgpuCloud(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cloud that offers its guests a licensed driver: the address of each release, or a pattern for them."""

    cloud: Cloud
    name: str
    default: Version | None = None
    """The release that the cloud itself installs, if it is not the newest."""
    files: tuple[CloudFile, ...] = ()
    pattern: str = ""
    releases: tuple[Version, ...] = ()
    """The releases available under the pattern."""
    installed_by: str = ""
    """What installs the driver, if the cloud publishes no file."""


class VgpuFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vgpu.json."""

    branches: tuple[VgpuBranch, ...]
    releases: tuple[VgpuRelease, ...]
    clouds: tuple[VgpuCloud, ...] = ()
    guest_subsystems: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """PCI id → the subsystems that a vGPU has in a guest, to detect one without reading its PCI capabilities."""
