"""What components have in common: what they see of a host and of its repositories, and what a host should have."""

from __future__ import annotations

import fnmatch
import operator
import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from gpusetup.components.judge import versions
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.model.package import Libraries, Origins, Package, Source
from gpusetup.model.plan import Action
from gpusetup.model.request import DriverCandidate, LibraryCandidates
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpusetup.components.judge import Judged
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.package import Built, Installer, Key, Manager, Runfile, Stream
    from gpusetup.model.plan import ActionKind, Offer, PackageSet, Refusal
    from gpusetup.model.repos import ReposFile
    from gpusetup.model.request import ModuleFlavour
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import DriverChoice, Reason, Resolution, Stack


class Offers:
    """Offers by package name, newest first; `known` is false when nobody could look."""

    def __init__(self, packages: dict[str, tuple[Offer, ...]] | None) -> None:
        self.packages = packages or {}
        self.known = packages is not None

    def names(self, pattern: str) -> Iterator[str]:
        """Names that match a pattern, when at least one real version is offered."""
        for name in sorted(self.packages):
            if fnmatch.fnmatchcase(name, pattern) and any(not offer.transitional for offer in self.packages[name]):
                yield name

    def has(self, name: str, version: str = "") -> bool:
        """Tell whether a package is really offered, at this upstream version if one is given."""
        return any(not version or versions.upstream(offer.version) == version for offer in self._real(name))

    def upstreams(self, name: str) -> list[str]:
        """The upstream versions of a package, newest first."""
        return list(dict.fromkeys(filter(None, (versions.upstream(offer.version) for offer in self._real(name)))))

    def versions(self, name: str) -> list[str]:
        """The full versions of a package, newest first."""
        return [offer.version for offer in self._real(name)]

    def exact(self, name: str, version: str) -> Package:
        """Return the package at this upstream version: the newest revision offered, else whatever revision comes."""
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


def newest_first(versions: Iterable[str]) -> list[str]:
    """Sort NVIDIA versions."""
    return sorted(set(versions), key=nv, reverse=True)


PINNING = "nvidia-driver-pinning-*"
"""Each is one file of apt preferences that keeps a driver where it is: none but the wanted one may stay."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """NVIDIA's repository for a distribution and CPU, or a mirror of it."""

    folder: str
    cpu: str
    url: str
    key: Key
    unproven: str = ""
    """Where the key is that nobody published a fingerprint of."""
    installer: Installer | None = None
    """The package on the host that it comes in."""
    also: tuple[str, ...] = ()
    """Its addresses, this one and others: a host's own entries of them would collide with ours over the key."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """One class of hosts, and what is known about it."""

    facts: HostFacts
    settings: Settings
    offers: Offers
    repos: ReposFile
    repository: Repository | None = None
    named: Mapping[str, Resolution] = field(default_factory=dict)
    """The answers for its named Python environments."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Everything one host should have."""

    stack: Stack
    packages: PackageSet | None
    settings: Settings
    manage_driver: bool
    """The driver's packages are ours to move; false: one that works is kept as it is."""
    requirements: tuple[str, ...] = ()
    interpreter: str = ""
    """What the environment is made with; empty: the system's own Python."""
    adopted: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    signer: str = ""
    """Who signed kernel modules that come built, where Secure Boot does not take that as the machine is delivered."""
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)
    """By a component's name what is wanted of it, as the host's record keeps it; what is not asked for is left out."""
    homeless: tuple[str, ...] = ()
    """Libraries that neither packages nor wheels would bring."""

    @property
    def prebuilt(self) -> bool:
        """Whether kernel modules come built: no key of this host signs them."""
        return self.packages is not None and self.packages.built == "prebuilt"


class Brought(NamedTuple):
    """What a component brings to one host."""

    wish: Any = None
    """As the host's record keeps it; what is empty is not asked for."""
    packages: tuple[Package, ...] = ()
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    """What a person should hear."""


class Group(NamedTuple):
    """A field of a package set."""

    why: str | Callable[[Judged, Wanted], str]
    """The reason of the action that brings them."""
    variable: str = ""
    """The role's variable that takes it; empty: one that takes several fields."""
    leaves: bool = False
    """What gpusetup brought of it goes again where nobody asks for it any more."""


def _nothing(*_: object) -> tuple[()]:
    return ()


def _nothing_named(*_: object) -> dict[str, Any]:
    return {}


def _no(_: Settings) -> bool:
    return False


def _brings_nothing(*_: object) -> Brought:
    return Brought()


@dataclass(frozen=True, kw_only=True)
class Component:
    """One thing that people ask for, and all that a plan has to know of it.

    Settings, plan, role variables, record and rollback go through `registry.COMPONENTS`; what a component leaves out it
    does not have.
    """

    name: str
    settings: Mapping[str, Callable[[Any, str], Any]] = field(default_factory=dict)
    """How each of its settings is read: the value, and the label that an error names it by."""
    packages: Mapping[str, Group] = field(default_factory=dict)
    asks: Callable[[Settings], object] = _no
    """Whether its packages must be looked for."""
    patterns: Callable[[Context, Matrix], Iterable[str]] = _nothing
    """The names to look for."""
    refusals: Callable[[HostFacts, Settings], Iterable[Refusal]] = _nothing
    """Why a host cannot have it, as far as facts tell."""
    wants: Callable[[Context, Manager, Stack, Matrix], Brought] = _brings_nothing
    """What it brings to a stack; raises where it cannot be."""
    notes: Callable[[Context, Wanted], Iterable[str]] = _nothing
    """What a person should hear once packages are chosen."""
    first: Callable[[Judged, Wanted], Iterable[Action]] = _nothing
    """What changes before packages do."""
    actions: Callable[[Judged, Wanted], Iterable[Action]] = _nothing
    """What changes after packages did."""
    variables: Callable[[HostFacts, Wanted], Mapping[str, Any]] = _nothing_named
    """What its role is told."""
    kept: str = ""
    """The field of a host's record that keeps its wish; empty: none."""
    none: Any = None
    """What that field has where nothing is wanted."""
    alike: Callable[[Any, Any], bool] = operator.eq
    """Whether two wishes on record are the same state of a host."""


@dataclass(frozen=True, kw_only=True)
class DriverPackages:
    """The driver's own packages, and what must go or stay with them."""

    packages: tuple[Package, ...]
    prerequisites: tuple[Package, ...] = ()
    fabric: tuple[Package, ...] = ()
    streams: tuple[Stream, ...] = ()
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    persistence: bool = True
    """Whether the persistence daemon is among them."""
    notes: tuple[str, ...] = ()
    """What a person should hear about the choice."""
    built: Built = "dkms"
    """Whether modules come built or are built on the host."""
    why: str = ""
    """Why so."""
    signer: str = ""
    """Who signed what comes built, where Secure Boot does not take it as the machine is delivered."""
    runfile: Runfile | None = None
    """The installer that brings the driver, when no package does."""
    keeps_kernel: bool = False
    """No package would bring modules for the next kernel: this one has to stay."""


class Family(Protocol):
    """One way in which a distribution's packages are named and selected; its libraries come as wheels."""

    @property
    def key(self) -> str:
        """Its name."""

    @property
    def manager(self) -> Manager:
        """The package manager."""

    def sources(self, context: Context) -> Origins:
        """Return where packages come from."""

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return globs of all names that a choice may need."""

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the drivers that are really offered; None when nobody could look."""

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return the packages of a driver."""

    def series(self, context: Context, choice: DriverChoice) -> str:  # noqa: ARG002 - one interface for all
        """Return the suffix that the names of a driver's packages end with."""
        return ""

    def has_prebuilt(self, context: Context) -> bool:  # noqa: ARG002 - one interface for all
        """Tell whether anybody makes prebuilt modules for this system, for whatever kernel."""
        return False

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:  # noqa: ARG002 - one interface for all
        """Return what is offered of each library that is to come as a package; nothing of one means no limit."""
        return ()

    def libraries(self, context: Context, stack: Stack) -> Libraries:  # noqa: ARG002 - one interface for all
        """Return toolkit, cuDNN and NCCL; a library that is left out comes as a wheel."""
        return Libraries()


def no_names(context: Context, choice: DriverChoice, whose: str) -> PreflightError:
    """Return why a driver has no packages here."""
    return PreflightError(
        "GS-335",
        f"{whose} for {context.facts.os.label} has no {choice.module} module of branch {choice.branch}",
        note="the matrix has no package name for it",
    )


def driver_candidates(found: dict[str, set[ModuleFlavour]]) -> tuple[DriverCandidate, ...]:
    """Return drivers with the module flavours that there are of each, newest first."""
    return tuple(
        DriverCandidate(version=version, modules=tuple(sorted(found[version]))) for version in newest_first(found)
    )


def candidates(**offered: list[tuple[str, str]]) -> tuple[LibraryCandidates, ...]:
    """Return the limits on libraries; beside CUDA itself, one of which nothing at all is offered is left out."""
    return tuple(
        LibraryCandidates(component=cast("Any", component), builds=tuple(dict.fromkeys(builds)))
        for component, builds in offered.items()
        if builds or component == "cuda"
    )


def repository_at(name: str, manager: Manager, uris: tuple[str, ...], key: Key) -> Source:
    """Return a repository of a vendor, which is flat where apt reads it."""
    if manager == "apt":
        return Source(name=name, kind=manager, uris=uris, key=key, suites=("/",), components=(), architectures=())
    return Source(name=name, kind=manager, uris=uris, key=key)


def archive_sources(context: Context, needed: Iterable[Iterable[str]]) -> Origins:
    """Return entries that switch on what is off of a distribution's own suites; mirror and key stay the host's.
    `needed`: the components that each row of packages lies in.
    """
    codename, components = context.facts.os.codename or "", dict.fromkeys(chain.from_iterable(needed))
    entries = []
    for suite in (codename, f"{codename}-updates", f"{codename}-security", f"{codename}-backports"):
        ours = f"/gpusetup-{suite}.sources"  # what an earlier apply added is still wanted
        sources = [source for source in context.facts.packages.sources if not source.file.endswith(ours)]
        own = [source for source in sources if suite in source.suites]
        lacking = [item for item in components if not any(item in source.components for source in own)]
        if own and lacking:
            entries.append(
                Source(
                    name=f"gpusetup-{suite}", kind="apt", like_suite=suite, suites=(suite,), components=tuple(lacking),
                    architectures=(),
                )
            )  # fmt: skip
    return Origins(sources=tuple(entries))


class _Ranged(Protocol):
    @property
    def min_branch(self) -> int | None: ...
    @property
    def max_branch(self) -> int | None: ...


_Row = TypeVar("_Row", bound=_Ranged)


def named(template: str, **texts: str) -> str:
    """Return a name with what it asks for filled in."""
    return template.format(**texts)


def glob(template: str, anything: str = "*") -> str:
    """Return the pattern of every name that a template can become."""
    return re.sub(r"\{\w+\}", lambda _match: anything, template)


def action(kind: ActionKind, identity: str, what: str, why: str, *, reboot: bool = False) -> Action:
    """Return a change; its id is its kind, and what tells it from others of that kind."""
    return Action(id=f"{kind}-{identity}" if identity else kind, kind=kind, what=what, why=why, reboot=reboot)


def covering(rows: Iterable[_Row], branch: int) -> Iterator[_Row]:
    """Yield the rows that answer for a driver branch."""
    for row in rows:
        if (row.min_branch or 0) <= branch and (row.max_branch is None or branch <= row.max_branch):
            yield row


def brought_driver(facts: HostFacts) -> bool:
    """Tell whether the driver that is there came by us."""
    wanted = record_of(facts).lock.wanted
    return wanted is not None and wanted.manage_driver


def working_driver(facts: HostFacts) -> str | None:
    """Return the driver that is loaded and whole: the one worth keeping when it fits."""
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
