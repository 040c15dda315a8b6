"""What is wanted of one host: components with versions, and how to get there."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model.components import (
    DesktopsWish,
    DirectMemory,
    EnvironmentWish,
    ImexWish,
    MigWish,
    RdmaStack,
    StorageMode,
)
from gpusetup.model.package import Source
from gpusetup.model.request import Requirement

ReloadPolicy = Literal["idle", "never"]
ModuleWay = Literal["auto", "prebuilt", "dkms"]
RebootPolicy = Literal["never", "when-needed", "schedule"]
RestartPolicy = Literal["never", "idle", "always"]
VgpuFeature = Literal["vgpu", "workstation", "gaming", "compute"]
Monitoring = Literal["none", "auto", "dcgm", "nvidia_gpu_exporter", "textfile"]
DriverOptions = dict[str, str | int | float | bool]


class HashedLines(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a requirements file, and the complete set with hashes that a lock has for them."""

    lines: tuple[str, ...]
    hashed: tuple[str, ...]
    python: str
    arch: str


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host's wishes, after command line, gpusetup.toml and inventory have been laid over each other."""

    requirements: tuple[Requirement, ...] = ()
    source: str = "nvidia"
    """`nvidia`, `distro`, the URL of a mirror of NVIDIA's repositories, the path of a bundle, or of a file that NVIDIA
    publishes: a local repository's package, a `.run` installer.
    """
    source_sha256: str = ""
    """The digest of the file that is the source."""
    source_fingerprints: tuple[str, ...] = ()
    """Full fingerprints of the key that signs a mirror's repositories, when it is not NVIDIA's."""
    source_key: str = ""
    """Where that key is: a URL, or a path on the host."""
    extra_sources: tuple[Source, ...] = ()
    """Repositories that are needed beside, such as a mirror of EPEL."""
    reboot: RebootPolicy | None = None
    """None: when needed on other machines, never on this one."""
    reload: ReloadPolicy = "idle"
    """When a module that is loaded is replaced without a reboot: idle is while nothing uses the GPU."""
    native: bool = False
    forward: bool = False
    replace: bool = False
    """Remove a driver of another origin, a `.run` installation included."""
    no_way_back: bool = False
    """Change a host whose installed packages can no longer be had, should the transaction fail."""
    module: ModuleWay = "auto"
    """Kernel modules that come built, or that DKMS builds on the host; auto: whatever fits the host."""
    secure_boot: Literal["refuse", "enroll"] = "refuse"
    """What to do where the firmware does not know the key that signs modules built there."""
    signing_key: str = ""
    """A site's own key on the host; empty: the one that DKMS makes."""
    signing_certificate: str = ""
    cuda_from: Literal["auto", "packages", "wheels"] = "auto"
    python_adopt: str = ""
    python_interpreter: str = ""
    python_path: str = "/opt/gpusetup"
    python_links: str = ""
    """Wheels instead of an index: a folder on the host, or the address of a page with links."""
    environments: tuple[EnvironmentWish, ...] = ()
    """Named environments beside the default one."""
    hashed: tuple[HashedLines, ...] = ()
    """From a lock with hashes: nothing else is installed."""
    containers: tuple[str, ...] = ()
    containers_restart: RestartPolicy = "idle"
    """When a runtime whose settings changed is restarted: idle is while no container runs in it."""
    mig: tuple[MigWish, ...] = ()
    vgpu_host: str = ""
    """The release of the vGPU software on the machine that lends a vGPU: it decides which guest drivers work."""
    vgpu_token: str = ""
    """A vGPU guest's client configuration token, a file on the controller."""
    vgpu_token_sha256: str = ""
    """Of its content; the content itself goes to the host and nowhere else."""
    vgpu_feature: VgpuFeature = "vgpu"
    imex: ImexWish | None = None
    rdma: RdmaStack = "none"
    """What drives adapters with RDMA."""
    gpudirect: DirectMemory = "auto"
    ipoib: bool = False
    """IP over InfiniBand: an interface for each port."""
    gdrcopy: bool = False
    gds: StorageMode = "none"
    """How files come into GPU memory."""
    desktops: DesktopsWish | None = None
    monitoring: Monitoring = "none"
    """What exports the figures of the GPUs; auto: by what they are."""
    monitoring_listen: str = ""
    """Address and port; empty: the exporter's own port, for this host alone."""
    monitoring_textfile: str = ""
    """The folder in which a node_exporter of the host's owner reads textfiles."""
    monitoring_certificate: str = ""
    monitoring_key: str = ""
    monitoring_passwords: str = ""
    """Paths on the host; the passwords are lines of an htpasswd file."""
    persistence: bool = True
    hold_kernel: bool = False
    dev: bool = False
    """Headers and static libraries of cuDNN and NCCL too; the toolkit has its own."""
    upgrade: bool = False
    """Choose anew: what is on record counts no more."""
    driver_options: DriverOptions = {}
    proxy: bool = False
    """A proxy is set in the inventory; its address stays there."""
