"""What all components share: the host and repository offers they read, and the wanted state they contribute to."""

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from gpusetup.components.judge import Judged, versions
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import Built, Installer, Key, Libraries, Manager, Origins, Package, Runfile, Source, Stream
from gpusetup.model.plan import Action, ActionKind, Offer, PackageSet, Refusal
from gpusetup.model.repos import ReposFile
from gpusetup.model.request import DriverCandidate, LibraryCandidates, ModuleFlavour
from gpusetup.model.settings import Settings
from gpusetup.model.stack import DriverChoice, Reason, Resolution, Stack
from gpusetup.versions import nv


class Offers:
    """The offered versions of each package, newest first; `known` is False until a host has read its repositories."""

    def __init__(self, packages: dict[str, tuple[Offer, ...]] | None) -> None:
        self.packages = packages or {}
        self.known = packages is not None

    def names(self, pattern: str) -> Iterator[str]:
        """Yield the names that match a pattern and have at least one version that is not transitional."""
        for name in sorted(self.packages):
            if fnmatch.fnmatchcase(name, pattern) and any(not offer.transitional for offer in self.packages[name]):
                yield name

    def has(self, name: str, version: str = "") -> bool:
        """Return whether a package is offered (transitional ones do not count), at this upstream version if given."""
        return any(not version or versions.upstream(offer.version) == version for offer in self._real(name))

    def upstreams(self, name: str) -> list[str]:
        """Return the upstream versions of a package, newest first."""
        return list(dict.fromkeys(filter(None, (versions.upstream(offer.version) for offer in self._real(name)))))

    def versions(self, name: str) -> list[str]:
        """Return the full versions of a package, newest first."""
        return [offer.version for offer in self._real(name)]

    def exact(self, name: str, version: str) -> Package:
        """Return the package at this upstream version: the newest revision offered, else a pattern for any revision."""
        for offer in self._real(name):
            if versions.upstream(offer.version) == version:
                return Package(name=name, version=offer.version)
        return Package(name=name, version=f"{version}-*")

    def matching(self, name: str, pattern: str) -> Package | None:
        """Return the package at the newest full version that matches a pattern."""
        found = next((item.version for item in self._real(name) if fnmatch.fnmatchcase(item.version, pattern)), None)
        return Package(name=name, version=found) if found else None

    def _real(self, name: str) -> tuple[Offer, ...]:
        return tuple(offer for offer in self.packages.get(name, ()) if not offer.transitional)


PINNING = "nvidia-driver-pinning-*"
"""Packages with apt preferences that pin a driver version; all but the wanted one must be removed."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """NVIDIA's repository for a distribution and CPU, or a mirror of it."""

    folder: str
    cpu: str
    url: str
    key: Key
    unproven: str = ""
    """The URL of the signing key when NVIDIA has published no fingerprint of it."""
    installer: Installer | None = None
    """For a local repository: the package on the host that contains it."""
    also: tuple[str, ...] = ()
    """All its URLs. Entries of the host for them are switched off, since two keys for one URL are an error in apt."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A host's facts and settings with all that is known about its repositories."""

    facts: HostFacts
    settings: Settings
    offers: Offers
    repos: ReposFile
    repository: Repository | None = None
    named: Mapping[str, Resolution] = field(default_factory=dict)
    """The resolved stack of each named Python environment."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The wanted state of one host."""

    stack: Stack
    packages: PackageSet | None
    settings: Settings
    manage_driver: bool
    """Whether gpusetup manages the driver's packages; False: somebody else's working driver is kept."""
    requirements: tuple[str, ...] = ()
    interpreter: str = ""
    """The Python that makes the environment; empty: the system's own."""
    adopted: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    signer: str = ""
    """Who signed the prebuilt modules, if firmware does not trust that key by default."""
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Component name → its wish as the host's record keeps it; only components that are asked for."""
    homeless: tuple[str, ...] = ()
    """Libraries of the stack that neither packages nor wheels would install."""

    @property
    def prebuilt(self) -> bool:
        """Whether the kernel modules are prebuilt, so that no key of this host signs them."""
        return self.packages is not None and self.packages.built == "prebuilt"


class Brought(NamedTuple):
    """What a component adds to the wanted state of one host."""

    wish: Any = None
    """Its wish as the host's record keeps it; empty: not asked for."""
    packages: tuple[Package, ...] = ()
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    """Warnings of the plan."""


class Group(NamedTuple):
    """How a plan treats the packages in one field of a package set."""

    why: str | Callable[[Judged, Wanted], str]
    """The reason that the plan gives for installing them."""
    variable: str = ""
    """The role variable for this field; empty: a variable that combines several fields."""
    leaves: tuple[str, ...] = ()
    """Globs of packages that go, if gpusetup installed them, when no setting asks for them any more."""


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Component:
    """A component as settings, plan, role variables, record and rollback read it from `registry.COMPONENTS`."""

    name: str
    settings: Mapping[str, Callable[[Any, str], Any]] = field(default_factory=dict)
    """Setting name → its parser, which gets the value and the label for errors."""
    packages: Mapping[str, Group] = field(default_factory=dict)
    asks: Callable[[Settings], object] = _nothing
    """Return a true value if repositories must be searched for its packages."""
    patterns: Callable[[Context, Matrix], Iterable[str]] = _nothing
    """Return the package names to search for."""
    refusals: Callable[[HostFacts, Settings], Iterable[Refusal]] = _nothing
    """Return why a host cannot have it, judged by facts alone."""
    wants: Callable[[Context, Manager, Stack, Matrix], Brought] = lambda *_: Brought()
    """Return what it adds to a stack; raise when the host cannot have it."""
    notes: Callable[[Context, Wanted], Iterable[str]] = _nothing
    """Return warnings, once packages are chosen."""
    first: Callable[[Judged, Wanted], Iterable[Action]] = _nothing
    """Return the actions before the package transaction."""
    actions: Callable[[Judged, Wanted], Iterable[Action]] = _nothing
    """Return the actions after it."""
    variables: Callable[[HostFacts, Wanted], Mapping[str, Any]] = lambda *_: {}
    """Return the variables of its role."""
    kept: str = ""
    """The field of a host's lock that keeps its wish; empty: none."""
    none: Any = None
    """The value of that field when nothing is wanted."""
    alike: Callable[[Any, Any], bool] = operator.eq
    """Return whether two recorded wishes mean the same state of a host."""


@dataclass(frozen=True, kw_only=True)
class DriverPackages:
    """The packages of a driver, and which others it removes, may remove or holds."""

    packages: tuple[Package, ...]
    prerequisites: tuple[Package, ...] = ()
    fabric: tuple[Package, ...] = ()
    streams: tuple[Stream, ...] = ()
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    persistence: bool = True
    """Whether these packages contain the persistence daemon."""
    notes: tuple[str, ...] = ()
    """Warnings about the choice."""
    built: Built = "dkms"
    """Whether modules are prebuilt or built on the host by DKMS."""
    why: str = ""
    """The reason for `built`."""
    signer: str = ""
    """Who signed the prebuilt modules, if firmware does not trust that key by default."""
    runfile: Runfile | None = None
    """The `.run` installer, when the driver does not come from packages."""
    keeps_kernel: bool = False
    """Whether the kernel must be held because no package would bring modules for the next one."""


class Family(Protocol):
    """A source of driver packages with its naming scheme; by default its CUDA libraries come as wheels."""

    @property
    def key(self) -> str:
        """The name of this source."""

    @property
    def manager(self) -> Manager:
        """The package manager."""

    def sources(self, context: Context) -> Origins:
        """Return the repositories that the packages come from."""

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return globs of all package names that a choice may need."""

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the offered drivers; None while the offers are unknown."""

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return the packages of a driver."""

    def series(self, context: Context, choice: DriverChoice) -> str:  # noqa: ARG002 - one interface for all
        """Return the suffix that the names of a driver's packages end with."""
        return ""

    def has_prebuilt(self, context: Context) -> bool:  # noqa: ARG002 - one interface for all
        """Return whether prebuilt modules exist for this system, for any kernel."""
        return False

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:  # noqa: ARG002 - one interface for all
        """Return the offered versions of libraries that come as packages; a library that is missing is not limited."""
        return ()

    def libraries(self, context: Context, stack: Stack) -> Libraries:  # noqa: ARG002 - one interface for all
        """Return toolkit, cuDNN and NCCL as packages; a library without packages comes as a wheel."""
        return Libraries()


def no_names(context: Context, choice: DriverChoice, whose: str) -> PreflightError:
    """Return the error for a driver whose package names the matrix does not know."""
    return PreflightError(
        "GS-335",
        f"{whose} for {context.facts.os.label} has no {choice.module} module of branch {choice.branch}",
        note="the matrix has no package name for it",
    )


def driver_candidates(found: dict[str, set[ModuleFlavour]]) -> tuple[DriverCandidate, ...]:
    """Return the drivers, newest first, each with its module flavours."""
    newest_first = sorted(found, key=nv, reverse=True)
    return tuple(DriverCandidate(version=version, modules=tuple(sorted(found[version]))) for version in newest_first)


def candidates(**offered: list[tuple[str, str]]) -> tuple[LibraryCandidates, ...]:
    """Return the offered builds of each library; a library without offers is left out, except CUDA itself."""
    return tuple(
        LibraryCandidates(component=cast("Any", component), builds=tuple(dict.fromkeys(builds)))
        for component, builds in offered.items()
        if builds or component == "cuda"
    )


def repository_at(name: str, manager: Manager, uris: tuple[str, ...], key: Key) -> Source:
    """Return a vendor's repository; for apt it is a flat one (suite "/")."""
    if manager == "apt":
        return Source(name=name, kind=manager, uris=uris, key=key, suites=("/",), components=(), architectures=())
    return Source(name=name, kind=manager, uris=uris, key=key)


class _Ranged(Protocol):
    @property
    def min_branch(self) -> int | None: ...
    @property
    def max_branch(self) -> int | None: ...


_Row = TypeVar("_Row", bound=_Ranged)


def named(template: str, **texts: str) -> str:
    """Return a package name with its placeholders filled in."""
    return template.format(**texts)


def glob(template: str, anything: str = "*") -> str:
    """Return the glob for every name that a template can produce."""
    return re.sub(r"\{\w+\}", lambda _match: anything, template)


def action(kind: ActionKind, identity: str, what: str, why: str, *, reboot: bool = False) -> Action:
    """Return an action; its id is its kind, then `identity` if given."""
    return Action(id=f"{kind}-{identity}" if identity else kind, kind=kind, what=what, why=why, reboot=reboot)


def covering(rows: Iterable[_Row], branch: int) -> Iterator[_Row]:
    """Yield the rows whose range contains a driver branch."""
    for row in rows:
        if (row.min_branch or 0) <= branch and (row.max_branch is None or branch <= row.max_branch):
            yield row


def brought_driver(facts: HostFacts) -> bool:
    """Return whether the last finished apply managed the driver."""
    wanted = record_of(facts).lock.wanted
    return wanted is not None and wanted.manage_driver


def working_driver(facts: HostFacts) -> str | None:
    """Return the version of the loaded driver if all its parts match; such a driver is kept when it fits."""
    driver = facts.driver
    if driver is None or driver.loaded is None or driver.mismatch or driver.version is None:
        return None
    if driver.library is None and driver.module is None:
        return None  # its packages are gone; it only stays loaded until the host reboots
    if driver.module is not None and driver.module != driver.version:
        return None
    if facts.smi is not None and not facts.smi.ok and not facts.simulated:
        return None
    return driver.version
