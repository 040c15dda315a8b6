"""Where packages come from and what they are called: repositories, keys and package names by family and driver branch.

Texts may hold placeholders that a plan fills in: {directory}, {arch}, {deb_arch}, {branch}, {version}, {major},
{minor} (CUDA as `12-8`), {dotted} (CUDA as `12.8`), {kernel}.
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
    """A signing key: trusted by its fingerprint, or by the digest of the file that brings it."""

    id: str
    file: str
    """Its name beside the packages (`3bf863cc.pub`)."""
    fingerprint: Fingerprint = ""
    """Empty when nobody published it: then only a digest can vouch for the key."""
    sha256: Sha256 = ""
    """Digest of the armoured file after every line that starts with `Version` is dropped."""


class Repository(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's package repository: how its addresses and files are formed."""

    url: str
    mirrors: tuple[str, ...] = ()
    arches: dict[Arch, str]
    """Directory per CPU architecture."""
    deb_arches: dict[Arch, str]
    apt_line: str
    keyring_package: str
    keyring_path: str
    rpm_file: str
    rpm_id: str
    runfile: str


class RepoDirectory(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One directory of it: a distribution release (and its rebuilds)."""

    directory: str
    systems: tuple[str, ...]
    """Ids of os.json that use it."""
    family: Family
    format: Format
    arches: tuple[Arch, ...]
    key: str = ""
    """Id of the signing key; empty: unknown, so only the keyring package's digest can vouch."""
    keyring_sha256: Sha256 = ""
    arch_directories: dict[Arch, str] = field(default_factory=dict)
    """CPU directories that are not named as everywhere else."""
    in_guides: tuple[str, ...] = ()
    """Editions of the driver guide whose table names it."""


class DriverPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver is called in NVIDIA's repository, for one family, branch range and kernel module flavour."""

    family: Family
    min_branch: int | None = None
    max_branch: int | None = None
    module: Literal["open", "proprietary"]
    packages: tuple[str, ...]
    """A machine with desktop libraries too."""
    compute_only: tuple[str, ...] = ()
    select: Literal["name", "pinning", "stream", "versionlock"]
    """How the branch is chosen: by the package name, a pinning package, a module stream, or a lock on the version."""
    pinning: tuple[str, ...] = ()
    stream: str = ""
    name_prefixes: tuple[str, ...] = ()
    """Beginnings of all package names of the driver, for holds and for finding what is there."""


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

    component: Literal["cuda", "cuda-runtime", "cuda-compat", "cudnn", "nccl"]
    format: Format
    min_version: Version | None = None
    max_version: Version | None = None
    packages: tuple[str, ...]
    dev_packages: tuple[str, ...] = ()
    pin: str = ""
    """The version as the package manager wants it: `{version}-1+cuda{dotted}`."""


class DistroDriver(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver as a distribution's own archive packages it."""

    system: str
    module: Literal["open", "proprietary"]
    packages: tuple[str, ...]
    components: tuple[str, ...] = ()
    """Archive components that must be switched on (`contrib`, `non-free`)."""
    version: str = ""
    """Package version last seen; empty: one per branch."""
    max_branch: int | None = None


class KernelPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What building modules for a kernel needs."""

    family: Literal["ubuntu", "debian", "el", "amazon", "azurelinux"]
    kernel: str = ""
    """Beginning of the kernel version for which this holds; empty: every kernel."""
    packages: tuple[str, ...]


class ContainerToolkit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container toolkit's repository."""

    url: str
    deb_list: str
    rpm_file: str
    key_file: str
    key_fingerprint: Fingerprint
    keyring_path: str
    packages: tuple[str, ...]
    version: Version
    retired_lists: tuple[str, ...] = ()


class ReposFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """repos.json."""

    repository: Repository
    keys: tuple[Key, ...]
    directories: tuple[RepoDirectory, ...]
    drivers: tuple[DriverPackages, ...]
    fabric: tuple[FabricPackages, ...]
    libraries: tuple[LibraryPackages, ...]
    distro_drivers: tuple[DistroDriver, ...]
    kernels: tuple[KernelPackages, ...]
    container_toolkit: ContainerToolkit
