"""What is wanted of one host: wishes for each component, all settings, and what of them the host keeps on record."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.package import PackageSet, Source
from gpusetup.model.request import Policy, Requirement
from gpusetup.model.stack import Stack


class ImexWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines of a domain, all of them on each, and how many channels programs may use."""

    nodes: tuple[str, ...]
    channels: int = 1


BackEnd = Literal["egl", "x"]
"""How VirtualGL reaches a GPU: by EGL without any X server there, or through an X server without a screen."""


class DesktopsWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who gets a desktop, and where it is reached."""

    users: tuple[str, ...]
    """The order counts: the first one's page is at the first port."""
    size: str = "1920x1080"
    session: str = ""
    """The program that draws the desktop; empty: a small window manager that comes along."""
    listen: str = "127.0.0.1"
    port: int = 6080
    certificate: str = ""
    key: str = ""
    group: str = ""
    """Who alone may use the GPUs; empty: as the driver and the distribution have it."""
    backend: BackEnd = "egl"


class EnvironmentWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as it is asked for."""

    name: str
    requirements: tuple[Requirement, ...]


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as a host is to have it."""

    name: str
    path: str
    """The link that names it."""
    stack: Stack
    """With the driver that all environments of the host share."""
    requirements: tuple[str, ...]
    interpreter: str = ""
    """What it is made with; empty: the system's own Python."""


class RoleEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same as the role takes it."""

    name: str
    path: str
    requirements: tuple[str, ...]
    interpreter: str = ""


class MigInstances(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU instances of one profile; a count of 0 is as many as there can be."""

    profile: str
    count: int = 1
    compute: tuple[str, ...] = ()
    """Compute instances in each; empty: one that has all of it."""


class MigWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a GPU is to be cut; `gpu` is `all`, a number or a UUID."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()
    layout: str = ""
    """A name that stands for instances which differ by product (all-balanced)."""


class MigLayout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one GPU is to have; `gpu` is its PCI address."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()


class MigInstance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU instance that is there, and its compute instances."""

    profile: str
    start: int
    compute: tuple[str, ...] = ()


class RecordedInstance(Struct, frozen=True, kw_only=True):
    """An instance on record; one that waits for a boot may have a count, and has no place."""

    profile: str
    compute: tuple[str, ...]
    start: int | UnsetType = UNSET
    count: int | UnsetType = UNSET


class MigCut(Struct, frozen=True, kw_only=True):
    """A GPU as it was found, or was left."""

    enabled: bool
    instances: tuple[RecordedInstance, ...]


class MigDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What programs see of it: a name and a UUID."""

    profile: str
    uuid: str


RdmaStack = Literal["none", "inbox", "doca"]
"""The distribution's own rdma-core, or NVIDIA's DOCA-OFED."""


DirectMemory = Literal["auto", "dma-buf", "nvidia-peermem"]
"""How an adapter reaches GPU memory."""


StorageMode = Literal["none", "auto", "p2pdma", "nvidia-fs"]
"""How files come into GPU memory without a copy through the host."""


class GpuDirect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What of RDMA and GPUDirect a host has."""

    stack: RdmaStack = "none"
    memory: Literal["", "dma-buf", "nvidia-peermem"] = ""
    """Empty: nothing reaches GPU memory but through the host's own."""
    storage: Literal["none", "p2pdma", "nvidia-fs"] = "none"
    modules: tuple[str, ...] = ()
    """Loaded at every boot."""


ExporterKind = Literal["dcgm", "nvidia_gpu_exporter", "textfile"]


class Exporter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What exports the figures of one host, and where."""

    kind: ExporterKind
    listen: str = ""
    """Address and port; empty: a node_exporter that is somebody else's, whose address is theirs."""
    folder: str = ""
    """Where the textfile goes."""
    dcgm: str = ""
    """The version of DCGM: it decides what the counters are called."""
    certificate: str = ""
    key: str = ""
    passwords: str = ""
    """Paths on the host, of what anybody needs who asks from elsewhere."""
    why: str = ""
    """Why this one."""


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
    allow_vulnerable: bool = False
    policy: Policy | None = None
    """What the site forbids: no variable of a host and no option changes it."""
    replace: bool = False
    """Remove a driver of another origin, a `.run` installation included."""
    no_way_back: bool = False
    """Change a host whose installed packages can no longer be had, should the transaction fail."""
    older_source: bool = False
    despite_maintenance: bool = False
    """Take repositories whose package lists are older than those that the host has used."""
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


class AppliedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings that go to the host as they were given, by the names of `Settings`."""

    containers: tuple[str, ...] = ()
    driver_options: DriverOptions = {}
    python_path: str = ""
    python_links: str = ""
    python_adopt: str = ""
    vgpu_token: str = ""
    vgpu_token_sha256: str = ""
    """The token itself is on no record."""
    vgpu_feature: VgpuFeature = "vgpu"


class AppliedWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What brought the stack to a host: enough to bring it again without asking a repository what it has today."""

    packages: PackageSet | None
    manage_driver: bool
    requirements: tuple[str, ...]
    interpreter: str = ""
    """With what the environment is made."""
    adopted: tuple[str, ...]
    services: tuple[str, ...]
    mig: tuple[MigLayout, ...] | UnsetType = UNSET
    """How GPUs are cut."""
    imex: ImexWish | UnsetType | None = UNSET
    gpudirect: GpuDirect | UnsetType = UNSET
    """RDMA and ways to GPU memory."""
    desktops: DesktopsWish | UnsetType | None = UNSET
    monitoring: Exporter | UnsetType = UNSET
    """What exports the host's figures."""
    environments: tuple[Environment, ...] | UnsetType = UNSET
    """Named environments."""
    settings: AppliedSettings = AppliedSettings()
