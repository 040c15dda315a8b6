"""What a distribution's own resolver would install on a machine that has nothing, whichever resolver that is.

Nothing of this machine counts: an empty package database, the archives of the wanted release, the sources of the plan.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpusetup.content import host_code
from gpusetup.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.package import Package, Source
    from gpusetup.model.variables import RoleVariables
    from gpusetup.supply.fetching import Wanted


class Need(NamedTuple):
    """One thing that a package needs, by its name and maybe a version."""

    name: str
    sign: str = ""
    version: str = ""


class Entry(NamedTuple):
    """One package of an index."""

    name: str
    version: str
    file: Wanted
    needs: tuple[Need, ...] = ()
    provides: tuple[tuple[str, str], ...] = ()
    """Other names that it goes by, with their versions."""
    arch: str = ""
    stanza: str = ""
    """What apt's index says of it."""
    listed: bool = False
    """Whether nothing but its digest in a signed list vouches for it: a package of rpm that nobody signed."""


_DOCUMENT = re.compile(r"^---.*?(?=^---|\Z)", re.DOTALL | re.MULTILINE)


class Extras(NamedTuple):
    """What a repository of rpm packages has beside them."""

    modules: str = ""
    """The streams of its modules."""
    keys: tuple[bytes, ...] = ()
    """Whose signatures its packages have."""

    def joined(self, other: Extras) -> Extras:
        """Return what both have, once."""
        modules = dict.fromkeys(_DOCUMENT.findall(self.modules + other.modules))
        return Extras("".join(modules), tuple(dict.fromkeys((*self.keys, *other.keys))))


class Root(ABC):
    """One release of a distribution for one CPU; `folder` is thrown away afterwards."""

    host: Any
    """The package manager, as it is driven on hosts, pointed to this folder."""

    def __init__(self, folder: Path, system: str) -> None:
        self.folder, self.system = folder, system

    def add(self, sources: Iterable[Source], network: dict[str, Any]) -> None:
        """Trust and use the repositories of a plan, their keys proven by fingerprint as on a host."""
        known = host_code("gpu_host.sources")
        failure = host_code("gpu_host.failure").HostFailure
        layout = known.Layout(str(self.folder))
        for source in sources:
            plain = msgspec.to_builtins(source)
            try:
                known.check(plain)
                written = known.render(plain, known.key_of(plain, network), layout, [])
            except failure as error:
                raise UnreachableError(
                    error.fields["reference"], error.fields["message"], note=error.fields["note"],
                    context=error.fields["context"], hint=error.fields["hint"],
                ) from error  # fmt: skip
            for path, (text, _mode) in written.items():
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())

    def offers(self, patterns: tuple[str, ...]) -> dict[str, Any]:
        """Return what the repositories have of these names, as a look at a host says it."""
        found: dict[str, Any] = host_code("gpu_host.offers").look(self.host, patterns)
        return found

    @abstractmethod
    def refresh(self) -> None:
        """Fetch the lists; one that does not come, or is signed by a stranger, ends it."""

    @abstractmethod
    def prefer(self, variables: RoleVariables, driver: str) -> None:
        """Choose as the plan of a host lets it choose."""

    @abstractmethod
    def closure(self, packages: Iterable[Package]) -> tuple[Entry, ...]:
        """Return every package that a machine with nothing needs for these."""

    @abstractmethod
    def index(self, url: str) -> list[Entry]:
        """Return everything that the only repository, which is at this address, has for this CPU."""

    @abstractmethod
    def extras(self) -> Extras:
        """Return what the repositories of the last answer have beside packages."""
