"""Where packages come from and what they are called: repositories, keys and package names by family and driver branch.

Texts may hold placeholders that a plan fills in: {directory}, {arch}, {deb_arch}, {branch}, {version}, {major},
{minor} (CUDA as `12-8`), {dotted} (CUDA as `12.8`), {kernel}, {flavour} (of the kernel), {os} (the distribution's
number).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from gpusetup.model.record import Arch, MatrixFile, Record, Version

Family = Literal["ubuntu", "debian", "el-modular", "el-plain", "suse"]
"""How a distribution's packages behave: `el-modular` has DNF module streams, `el-plain` has none."""
Format = Literal["deb", "rpm"]
Fingerprint = Annotated[str, Meta(pattern=r"^([0-9A-F]{40})?$")]
Sha256 = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]


class Key(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signing key: trusted by its fingerprint."""

    id: str
    file: str
    """Its name beside the packages (`3bf863cc.pub`)."""
    fingerprint: Fingerprint = ""
    """Empty when nobody published it: then a site must name one, or a keyring package's digest vouches."""


class Repository(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's package repository: how its addresses and files are formed."""

    url: str
    mirrors: tuple[str, ...] = ()
    arches: dict[Arch, str]
    """Directory per CPU architecture."""
    deb_arches: dict[Arch, str]
    keyring_package: str
    keyring_path: str


class RepoDirectory(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One directory of it: a distribution release (and its rebuilds)."""

    directory: str
    systems: tuple[str, ...]
    """Ids of os.json that use it."""
    family: Family
    arches: tuple[Arch, ...]
    key: str = ""
    """Id of the signing key; empty: unknown, so only the keyring package's digest can vouch."""
    keyring_sha256: Sha256 = ""
    arch_directories: dict[Arch, str] = field(default_factory=dict)
    """CPU directories that are not named as everywhere else."""


class DriverPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver is called in NVIDIA's repository, for one family, branch range and kernel module flavour."""

    family: Family
    min_branch: int | None = None
    max_branch: int | None = None
    module: Literal["open", "proprietary"]
    packages: tuple[str, ...]
    """A machine with desktop libraries too: for where nobody could look what else is there."""
    compute_only: tuple[str, ...] = ()
    """The kernel module's package, then what a machine without a screen needs at least."""
    optional: tuple[str, ...] = ()
    """More for a machine without a screen, where it is offered."""
    persistence: str = ""
    """The package of the persistence daemon, where nothing else brings it."""
    flavoured: tuple[str, ...] = ()
    """What else is of this module flavour alone: it goes when the other one comes."""
    foreign: tuple[str, ...] = ()
    """Names of another origin that stand in the way."""
    pinning: tuple[str, ...] = ()
    """Packages that choose the version, the best first."""
    stream: str = ""
    """The stream of the module nvidia-driver that chooses the branch."""


class PrebuiltModules(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernel modules that come built, for where NVIDIA's repository has the rest of the driver."""

    systems: tuple[str, ...]
    """Ids of os.json whose kernels they are made for."""
    arch: Arch | None = None
    min_branch: int | None = None
    max_branch: int | None = None
    module: Literal["open", "proprietary"]
    release: str
    """A regular expression for the whole kernel release; its named groups fill the texts below."""
    package: str
    """What holds the modules of this very kernel, or of all kernels that keep its interface."""
    built: str = ""
    """Its full version as a pattern, where the version says what kernel it was built with; empty: the name does."""
    stream: str = ""
    """The stream of the module nvidia-driver that has it."""
    enable: str = ""
    """The distribution's own repository that has it, which is off at first."""
    next: str = ""
    """The package that brings the modules of later kernels, or keeps a kernel without modules away."""
    lasting: bool = False
    """It holds for later kernels too: the distribution keeps their interface."""
    signer: str
    trusted: bool = False
    """Whether Secure Boot takes the signature as a machine is delivered."""


class StackNames(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Globs of everything that moves with the driver and of nothing else: what is held, and what may go."""

    source: Literal["nvidia", "distro"]
    families: tuple[Family, ...]
    names: tuple[str, ...]


class FabricPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fabric Manager and its companions: all of exactly the driver's version."""

    format: Format
    min_branch: int | None = None
    max_branch: int | None = None
    fabric_manager: str
    nscq: str
    imex: str
    nvsdm: str = ""
    nvlink5: tuple[str, ...] = ()
    """Packages with numbers of their own that fourth-generation NVSwitch needs."""
    service: str


class LibraryPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of a toolkit or library package and the text that pins its version."""

    component: Literal["cuda", "cudnn", "nccl"]
    format: Format
    min_version: Version | None = None
    max_version: Version | None = None
    packages: tuple[str, ...]
    dev_packages: tuple[str, ...] = ()
    """They move with it where they are installed."""
    pin: str = ""
    """The version as the package manager wants it: `{version}-1+cuda{dotted}`."""


class DistroDriver(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver as a distribution's own archive packages it."""

    systems: tuple[str, ...]
    module: Literal["open", "proprietary"]
    series: str = ""
    """What names hold of an older series that lies beside the suite's own."""
    modules: tuple[str, ...]
    """Packages of the kernel module, the best first; one for {kernel} is built and signed."""
    next_kernel: str = ""
    """The package that brings the module of every later kernel."""
    signer: str = ""
    """Who signed the prebuilt modules; Secure Boot takes a distribution's own signature."""
    packages: tuple[str, ...]
    """User space; the first tells which versions there are."""
    optional: tuple[str, ...] = ()
    persistence: str = ""
    roots: tuple[str, ...] = ()
    """What else must go for another series to take its place."""
    components: tuple[str, ...] = ()
    """Archive components that must be switched on (`contrib`, `non-free`)."""
    version: str = ""
    """Package version last seen; empty: there is one series per branch."""
    max_branch: int | None = None


class KernelPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What building modules for a kernel needs; the first row that fits a kernel is the answer."""

    systems: tuple[str, ...]
    """The `ID` of os-release."""
    arch: Arch | None = None
    release: str
    """A regular expression for the whole kernel release; its named groups fill the texts below."""
    package: str
    """The headers of this very kernel."""
    version: str = ""
    """Its version; empty: the name says it."""
    beside: tuple[str, ...] = ()
    """More of the same version."""
    next: tuple[str, ...] = ()
    """Packages that bring the headers of the next kernel with it; one that is offered is taken."""


class ContainerToolkit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container toolkit's repository."""

    url: str
    deb_path: str
    rpm_path: str
    key: str
    """Id of the signing key."""
    packages: tuple[str, ...]
    version: Version
    """The oldest that fits the roles; newer ones are taken as they come."""


class DesktopPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What draws desktops and shows them."""

    manager: Literal["apt"]
    packages: tuple[str, ...]
    servers: tuple[tuple[str, ...], ...]
    """Packages of each VNC server, the best first; the last is the distribution's own."""
    session: tuple[str, ...]
    """What draws the desktop of those who named nothing."""
    x_server: tuple[str, ...]
    """What an X server on a GPU needs besides."""
    graphics: tuple[str, ...]
    """The half of the driver that draws, as families name it: each is taken where it is offered."""


class ReposFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """repos.json."""

    repository: Repository
    keys: tuple[Key, ...]
    directories: tuple[RepoDirectory, ...]
    drivers: tuple[DriverPackages, ...]
    prebuilt: tuple[PrebuiltModules, ...] = ()
    stack_names: tuple[StackNames, ...]
    fabric: tuple[FabricPackages, ...]
    libraries: tuple[LibraryPackages, ...]
    distro_drivers: tuple[DistroDriver, ...]
    kernels: tuple[KernelPackages, ...]
    container_toolkit: ContainerToolkit
    desktops: DesktopPackages
