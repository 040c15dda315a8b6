"""What stacks stand on: GPUs, systems with a fabric, distributions, vGPU releases; one file Struct each."""

# Annotations are not postponed here: as text, every one would be compiled again at every start.
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gpusetup.model.record import Arch, Capability, MatrixFile, Record, Version


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


class GpuFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gpus.json."""

    gpus: tuple[Gpu, ...]
    other_makers: dict[str, str] = field(default_factory=dict)
    """Maker → what its devices are called, as a pattern."""


class PackagedPython(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Python that a distribution packages beside its own: enough to make an environment with pip in it."""

    version: Annotated[str, Meta(pattern=r"^3\.[0-9]+$")]
    packages: tuple[str, ...]
    path: str
    """Where they put the interpreter."""
    since: str = ""
    """First minor release of the distribution that has it; empty: every one, or nobody says."""
    prerelease: bool = False
    """What is packaged is no final release: taken only where it is asked for."""


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
    pythons: tuple[PackagedPython, ...] = ()
    """Packages of other Pythons, the preferred one first."""

    def packaged(self, version: str) -> PackagedPython | None:
        """Return the package of a Python that is not the distribution's own."""
        return next((row for row in self.pythons if row.version == version), None)


class OsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """os.json."""

    systems: tuple[OsRelease, ...]
    said_as: dict[str, str] = field(default_factory=dict)
    """What people write → the name in an id."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Systems that get nothing from here → what to do there."""
    bases: dict[str, str] = field(default_factory=dict)
    """Derivatives → the distribution whose packages they take."""


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


Cloud = Literal["azure", "google", "aws", "alibaba"]


class CloudFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a cloud keeps the guest driver of one release."""

    vgpu: Version
    url: str
    sha256: str = ""


class VgpuCloud(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cloud that offers its guests the driver, and licenses it for them: each release's address, or their pattern."""

    cloud: Cloud
    name: str
    default: Version | None = None
    """What the cloud itself installs, where that is not the newest."""
    files: tuple[CloudFile, ...] = ()
    pattern: str = ""
    releases: tuple[Version, ...] = ()
    """The releases for which the pattern holds."""
    installed_by: str = ""
    """What installs the driver where the cloud gives no file of it away."""


class VgpuFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vgpu.json."""

    branches: tuple[VgpuBranch, ...]
    releases: tuple[VgpuRelease, ...]
    clouds: tuple[VgpuCloud, ...] = ()
    guest_subsystems: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """PCI id → the subsystems under which it is a vGPU in a guest: for who may not read a device's capabilities."""
