"""The settings of one host: requests for each component, all options, and the part that the host records."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.package import PackageSet, Source
from gpusetup.model.request import Policy, Requirement
from gpusetup.model.stack import Stack


class ImexWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines of an IMEX domain, and the number of channels for programs."""

    nodes: tuple[str, ...]
    channels: int = 1


BackEnd = Literal["egl", "x"]
"""How VirtualGL reaches a GPU: through EGL without an X server, or through an X server without a screen."""


class DesktopsWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The users of remote desktops, and their addresses."""

    users: tuple[str, ...]
    """In the order of their ports: the first user's page is at the first port."""
    size: str = "1920x1080"
    session: str = ""
    """The program that draws the desktop; empty: a small window manager that is installed for it."""
    listen: str = "127.0.0.1"
    port: int = 6080
    certificate: str = ""
    key: str = ""
    group: str = ""
    """The only group that may use the GPUs; empty: the default of driver and distribution."""
    backend: BackEnd = "egl"


class EnvironmentWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One requested Python environment."""

    name: str
    requirements: tuple[Requirement, ...]


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One resolved Python environment of a host."""

    name: str
    path: str
    """The link to it."""
    stack: Stack
    """Its stack; all environments of the host share the driver."""
    requirements: tuple[str, ...]
    interpreter: str = ""
    """The Python that creates it; empty: the system's own."""


class RoleEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as passed to the role."""

    name: str
    path: str
    requirements: tuple[str, ...]
    interpreter: str = ""


class MigInstances(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU instances of one profile; a count of 0 means as many as possible."""

    profile: str
    count: int = 1
    compute: tuple[str, ...] = ()
    """Compute instances in each; empty: one with everything."""


class MigWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requested partitioning of a GPU; `gpu` is `all`, a number or a UUID."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()
    layout: str = ""
    """A named layout whose instances depend on the product (all-balanced)."""


class MigLayout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The resolved partitioning of one GPU; `gpu` is its PCI address."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()


class MigInstance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An existing GPU instance and its compute instances."""

    profile: str
    start: int
    compute: tuple[str, ...] = ()


class RecordedInstance(Struct, frozen=True, kw_only=True):
    """A recorded instance; one that waits for a reboot has no start and may have a count."""

    profile: str
    compute: tuple[str, ...]
    start: int | UnsetType = UNSET
    count: int | UnsetType = UNSET


class MigCut(Struct, frozen=True, kw_only=True):
    """The MIG state of a GPU before or after an apply."""

    enabled: bool
    instances: tuple[RecordedInstance, ...]


class MigDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A MIG device as programs see it."""

    profile: str
    uuid: str


RdmaStack = Literal["none", "inbox", "doca"]
"""`inbox`: the distribution's own rdma-core; `doca`: NVIDIA's DOCA-OFED."""
DirectMemory = Literal["auto", "dma-buf", "nvidia-peermem"]
"""How an adapter accesses GPU memory."""
StorageMode = Literal["none", "auto", "p2pdma", "nvidia-fs"]
"""How files are read into GPU memory without a copy in host memory."""


class GpuDirect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The RDMA and GPUDirect features of a host."""

    stack: RdmaStack = "none"
    memory: Literal["", "dma-buf", "nvidia-peermem"] = ""
    """Empty: adapters access GPU memory only through host memory."""
    storage: Literal["none", "p2pdma", "nvidia-fs"] = "none"
    modules: tuple[str, ...] = ()
    """Modules to load at every boot."""


ExporterKind = Literal["dcgm", "nvidia_gpu_exporter", "textfile"]


class Exporter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The exporter of one host's figures, and its address."""

    kind: ExporterKind
    listen: str = ""
    """Address and port; empty: the host's existing node_exporter serves the figures at its own address."""
    folder: str = ""
    """The folder of the textfile."""
    dcgm: str = ""
    """The version of DCGM, which decides the names of the counters."""
    certificate: str = ""
    key: str = ""
    passwords: str = ""
    """Paths on the host of the files for access from other machines."""
    why: str = ""
    """Why this exporter was chosen."""


ReloadPolicy = Literal["idle", "never"]
ModuleWay = Literal["auto", "prebuilt", "dkms"]
RebootPolicy = Literal["never", "when-needed", "schedule"]
RestartPolicy = Literal["never", "idle", "always"]
VgpuFeature = Literal["vgpu", "workstation", "gaming", "compute"]
Monitoring = Literal["none", "auto", "dcgm", "nvidia_gpu_exporter", "textfile"]
DriverOptions = dict[str, str | int | float | bool]


class HashedLines(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a requirements file, and a lock's complete set with hashes for them."""

    lines: tuple[str, ...]
    hashed: tuple[str, ...]
    python: str
    arch: str


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one host, merged from command line, gpusetup.toml and inventory."""

    requirements: tuple[Requirement, ...] = ()
    source: str = "nvidia"
    """`nvidia`, `distro`, the URL of a mirror of NVIDIA's repositories, the path of a bundle, or of a file from NVIDIA:
    a local repository package or a `.run` installer.
    """
    source_sha256: str = ""
    """The digest of a source that is a file."""
    source_fingerprints: tuple[str, ...] = ()
    """Full fingerprints of the key that signs a mirror's repositories, if it is not NVIDIA's."""
    source_key: str = ""
    """The place of that key: a URL, or a path on the host."""
    extra_sources: tuple[Source, ...] = ()
    """Further repositories, such as a mirror of EPEL."""
    reboot: RebootPolicy | None = None
    """None: when needed on other machines, never on this one."""
    reload: ReloadPolicy = "idle"
    """When to replace a loaded module without a reboot; `idle`: while nothing uses the GPU."""
    native: bool = False
    forward: bool = False
    allow_vulnerable: bool = False
    policy: Policy | None = None
    """What the site forbids; no host variable or option overrides it."""
    replace: bool = False
    """Remove a driver of another origin, including a `.run` installation."""
    no_way_back: bool = False
    """Change a host even if its installed packages are no longer available should the transaction fail."""
    older_source: bool = False
    """Accept repositories whose package lists are older than those that the host has used."""
    despite_maintenance: bool = False
    """Change a host although its cloud announced maintenance."""
    module: ModuleWay = "auto"
    """Use prebuilt kernel modules, or build them on the host with DKMS; auto: whatever fits the host."""
    secure_boot: Literal["refuse", "enroll"] = "refuse"
    """What to do if the firmware does not trust the key that signs modules built on the host."""
    signing_key: str = ""
    """A site's own key on the host; empty: the one that DKMS creates."""
    signing_certificate: str = ""
    cuda_from: Literal["auto", "packages", "wheels"] = "auto"
    python_adopt: str = ""
    python_interpreter: str = ""
    python_path: str = "/opt/gpusetup"
    python_links: str = ""
    """Wheels instead of an index: a folder on the host, or the address of a page with links."""
    environments: tuple[EnvironmentWish, ...] = ()
    """Named environments besides the default one."""
    hashed: tuple[HashedLines, ...] = ()
    """From a lock with hashes: nothing else is installed."""
    containers: tuple[str, ...] = ()
    containers_restart: RestartPolicy = "idle"
    """When to restart a runtime with changed settings; `idle`: while it runs no container."""
    mig: tuple[MigWish, ...] = ()
    vgpu_host: str = ""
    """The vGPU software release of the host that provides a vGPU; it decides which guest drivers work."""
    vgpu_token: str = ""
    """A vGPU guest's client configuration token, a file on the controller."""
    vgpu_token_sha256: str = ""
    """The digest of its content; the content itself is sent only to the host."""
    vgpu_feature: VgpuFeature = "vgpu"
    imex: ImexWish | None = None
    rdma: RdmaStack = "none"
    """The software for RDMA adapters."""
    gpudirect: DirectMemory = "auto"
    ipoib: bool = False
    """IP over InfiniBand: an interface for each port."""
    gdrcopy: bool = False
    gds: StorageMode = "none"
    """How files are read into GPU memory."""
    desktops: DesktopsWish | None = None
    monitoring: Monitoring = "none"
    """The exporter of the GPUs' figures; auto: chosen by the kind of GPUs."""
    monitoring_listen: str = ""
    """Address and port; empty: the exporter's default port, on this host only."""
    monitoring_textfile: str = ""
    """The folder from which the host's existing node_exporter reads textfiles."""
    monitoring_certificate: str = ""
    monitoring_key: str = ""
    monitoring_passwords: str = ""
    """Paths on the host; the passwords are lines of an htpasswd file."""
    persistence: bool = True
    hold_kernel: bool = False
    dev: bool = False
    """Also install headers and static libraries of cuDNN and NCCL; the toolkit includes its own."""
    upgrade: bool = False
    """Choose versions again, ignoring those on record."""
    driver_options: DriverOptions = {}
    proxy: bool = False
    """A proxy is set in the inventory, and its address stays there."""


class AppliedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings passed to the host unchanged, by their names in `Settings`."""

    containers: tuple[str, ...] = ()
    driver_options: DriverOptions = {}
    python_path: str = ""
    python_links: str = ""
    python_adopt: str = ""
    vgpu_token: str = ""
    vgpu_token_sha256: str = ""
    """The digest of the token, which is itself never recorded."""
    vgpu_feature: VgpuFeature = "vgpu"


class AppliedWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What installed the stack on a host: enough to install it again without querying repositories."""

    packages: PackageSet | None
    manage_driver: bool
    requirements: tuple[str, ...]
    interpreter: str = ""
    """The Python that creates the environment."""
    adopted: tuple[str, ...]
    services: tuple[str, ...]
    mig: tuple[MigLayout, ...] | UnsetType = UNSET
    imex: ImexWish | UnsetType | None = UNSET
    gpudirect: GpuDirect | UnsetType = UNSET
    desktops: DesktopsWish | UnsetType | None = UNSET
    monitoring: Exporter | UnsetType = UNSET
    environments: tuple[Environment, ...] | UnsetType = UNSET
    """Named environments."""
    settings: AppliedSettings = AppliedSettings()
