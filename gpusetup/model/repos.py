"""Matrix records of repositories, keys and package names, by distribution family and driver branch.

Texts may contain placeholders that a plan fills in: {directory}, {arch}, {deb_arch}, {branch}, {version}, {major},
{minor} (CUDA as `12-8`), {dotted} (CUDA as `12.8`), {kernel}, {flavour} (of the kernel), {os} (the distribution's
number).
"""

from typing import Annotated, Literal

from msgspec import field

from gpusetup.model import whole
from gpusetup.model.record import Arch, MatrixFile, Record, Version

Family = Literal["ubuntu", "debian", "el-modular", "el-plain", "suse"]
"""The kind of a distribution's packaging: `el-modular` has DNF module streams, `el-plain` has none."""
Format = Literal["deb", "rpm"]
Fingerprint = Annotated[str, whole(r"([0-9A-F]{40})?")]
Sha256 = Annotated[str, whole(r"([0-9a-f]{64})?")]


class Key(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signing key, trusted by its fingerprint."""

    id: str
    file: str
    """Its file name next to the packages (`3bf863cc.pub`)."""
    fingerprint: Fingerprint = ""
    """Empty if unpublished: then a site must give one, or the keyring package's digest is checked instead."""


class Repository(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's package repository: its addresses and file names."""

    url: str
    mirrors: tuple[str, ...] = ()
    arches: dict[Arch, str]
    """Directory per CPU architecture."""
    deb_arches: dict[Arch, str]
    keyring_package: str
    keyring_path: str


class RepoDirectory(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One directory of the repository: for a distribution release and its rebuilds."""

    directory: str
    systems: tuple[str, ...]
    """Ids of os.json that use it."""
    family: Family
    arches: tuple[Arch, ...]
    key: str = ""
    """Id of the signing key; empty: unknown, so only the keyring package's digest can be checked."""
    keyring_sha256: Sha256 = ""
    arch_directories: dict[Arch, str] = field(default_factory=dict)
    """CPU directories with unusual names."""


class DriverPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver's packages in NVIDIA's repository, for one family, branch range and kernel module flavour."""

    family: Family
    min_branch: int | None = None
    max_branch: int | None = None
    module: Literal["open", "proprietary"]
    packages: tuple[str, ...]
    """The packages including desktop libraries, used if the other offered packages are unknown."""
    compute_only: tuple[str, ...] = ()
    """The kernel module's package, then the minimum for a machine without a screen."""
    optional: tuple[str, ...] = ()
    """Further packages for a machine without a screen, installed if offered."""
    persistence: str = ""
    """The package of the persistence daemon, if no other package contains it."""
    flavoured: tuple[str, ...] = ()
    """Other packages of this module flavour, removed when switching to the other one."""
    foreign: tuple[str, ...] = ()
    """Conflicting packages of another origin."""
    pinning: tuple[str, ...] = ()
    """Packages that select the version, in order of preference."""
    stream: str = ""
    """The stream of the module nvidia-driver that selects the branch."""


class PrebuiltModules(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prebuilt kernel modules, used with the rest of the driver from NVIDIA's repository."""

    systems: tuple[str, ...]
    """Ids of os.json whose kernels they are built for."""
    arch: Arch | None = None
    min_branch: int | None = None
    max_branch: int | None = None
    module: Literal["open", "proprietary"]
    release: str
    """A regular expression for the whole kernel release; its named groups fill the texts below."""
    package: str
    """The package with the modules for exactly this kernel, or for all kernels with its interface."""
    built: str = ""
    """A pattern for its full version, if the version names the kernel it was built for; empty: the name does."""
    stream: str = ""
    """The stream of the module nvidia-driver that contains it."""
    enable: str = ""
    """The distribution's own repository that contains it, disabled by default."""
    next: str = ""
    """The package that installs the modules of later kernels, or blocks kernels without modules."""
    lasting: bool = False
    """It also works with later kernels, because the distribution keeps their interface."""
    signer: str
    trusted: bool = False
    """Whether Secure Boot accepts the signature on a machine as delivered."""


class StackNames(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Globs for exactly the packages that move with the driver: those that are held and may be removed."""

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
    """Packages with other version numbers that fourth-generation NVSwitch needs."""
    service: str


class LibraryPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages of a toolkit or library, and the text that pins their version."""

    component: Literal["cuda", "cudnn", "nccl"]
    format: Format
    min_version: Version | None = None
    max_version: Version | None = None
    packages: tuple[str, ...]
    dev_packages: tuple[str, ...] = ()
    """Development packages, kept at the same version where they are installed."""
    pin: str = ""
    """The version in the package manager's format: `{version}-1+cuda{dotted}`."""


class DistroDriver(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver in a distribution's own archive."""

    systems: tuple[str, ...]
    module: Literal["open", "proprietary"]
    series: str = ""
    """The part of the package names that marks an older series, next to the suite's own."""
    modules: tuple[str, ...]
    """Packages of the kernel module, in order of preference; one for {kernel} is built and signed."""
    next_kernel: str = ""
    """The package that installs the module for every later kernel."""
    signer: str = ""
    """The signer of the prebuilt modules; Secure Boot accepts a distribution's own signature."""
    packages: tuple[str, ...]
    """User space packages; the versions of the first are the available ones."""
    optional: tuple[str, ...] = ()
    persistence: str = ""
    roots: tuple[str, ...] = ()
    """Other packages to remove when switching to another series."""
    components: tuple[str, ...] = ()
    """Archive components that must be enabled (`contrib`, `non-free`)."""
    version: str = ""
    """Package version last seen; empty: there is one series per branch."""
    max_branch: int | None = None


class KernelPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages for building modules for a kernel; the first matching row counts."""

    systems: tuple[str, ...]
    """The `ID` of os-release."""
    arch: Arch | None = None
    release: str
    """A regular expression for the whole kernel release; its named groups fill the texts below."""
    package: str
    """The headers of exactly this kernel."""
    version: str = ""
    """Its version; empty: the name contains it."""
    beside: tuple[str, ...] = ()
    """Further packages of the same version."""
    next: tuple[str, ...] = ()
    """Packages that install the headers together with each new kernel; the first offered one is used."""


class ContainerToolkit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container toolkit's repository."""

    url: str
    deb_path: str
    rpm_path: str
    key: str
    """Id of the signing key."""
    packages: tuple[str, ...]
    version: Version
    """The oldest version that the roles support; newer ones are installed as they appear."""


class DesktopPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages that draw and show desktops."""

    manager: Literal["apt"]
    packages: tuple[str, ...]
    servers: tuple[tuple[str, ...], ...]
    """Packages of each VNC server, in order of preference; the last is the distribution's own."""
    session: tuple[str, ...]
    """The default desktop session."""
    x_server: tuple[str, ...]
    """Further packages for an X server on a GPU."""
    graphics: tuple[str, ...]
    """The driver's graphics packages under the names of each family; each is installed if offered."""


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
