"""What a distribution's package manager would install on an empty machine.

It uses nothing of this machine: an empty package database, the archives of the wanted release, the plan's sources.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpusetup.content import host_code
from gpusetup.errors import UnreachableError
from gpusetup.model.package import Package, Source
from gpusetup.model.record import Arch
from gpusetup.model.variables import RoleVariables
from gpusetup_fleet.supply.fetching import Wanted


class Entry(NamedTuple):
    """One package in an index."""

    name: str
    version: str
    file: Wanted
    arch: str = ""
    stanza: str = ""
    """Its paragraph in apt's index."""
    listed: bool = False
    """Whether only its digest in a signed list proves it: an rpm package without a signature."""


_DOCUMENT = re.compile(r"^---.*?(?=^---|\Z)", re.DOTALL | re.MULTILINE)


class Extras(NamedTuple):
    """What an rpm repository has besides packages."""

    modules: str = ""
    """Its module streams, as YAML."""
    keys: tuple[bytes, ...] = ()
    """The keys that signed its packages."""

    def joined(self, other: "Extras") -> "Extras":
        """Return the union of both."""
        modules = dict.fromkeys(_DOCUMENT.findall(self.modules + other.modules))
        return Extras("".join(modules), tuple(dict.fromkeys((*self.keys, *other.keys))))


class Root(ABC):
    """One release of a distribution for one CPU, in a temporary folder."""

    host: Any
    """The package manager, driven as on hosts but pointed at this folder."""

    def __init__(self, folder: Path, system: str, arch: Arch, archives: tuple[str, ...] = ()) -> None:
        """`archives` replace the distribution's own."""
        self.folder, self.system, self.arch = folder, system, arch
        self.begin(archives)

    @abstractmethod
    def begin(self, archives: tuple[str, ...]) -> None:
        """Point the package manager at the folder, and name the archives to it."""

    def add(self, sources: Iterable[Source]) -> None:
        """Configure the repositories of a plan; their keys are checked by fingerprint as on a host."""
        known = host_code("gpu_host.sources")
        failure = host_code("gpu_host.failure").HostFailure
        layout = known.Layout(str(self.folder))
        for source in sources:
            plain = msgspec.to_builtins(source)
            try:
                known.check(plain)
                written = known.render(plain, known.key_of(plain, {}), layout, [])
            except failure as error:
                raise UnreachableError(
                    error.fields["reference"], error.fields["message"], note=error.fields["note"],
                    context=error.fields["context"], hint=error.fields["hint"],
                ) from error  # fmt: skip
            for path, (text, _mode) in written.items():
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())

    def offers(self, patterns: tuple[str, ...]) -> dict[str, Any]:
        """Return what the repositories offer for these name patterns, in the form of a host's facts."""
        found: dict[str, Any] = self.host.matching(patterns) if patterns else {}
        return found

    @abstractmethod
    def refresh(self) -> None:
        """Fetch the package lists; raise if one is missing or has no trusted signature."""

    @abstractmethod
    def prefer(self, variables: RoleVariables, driver: str) -> None:
        """Set the preferences (pins, module streams) of a host's plan."""

    @abstractmethod
    def closure(self, packages: Iterable[Package]) -> tuple[Entry, ...]:
        """Return these packages with all their dependencies, for an empty machine."""

    def extras(self) -> Extras:
        """Return module streams and keys of the repositories of the last answer; apt's index has everything."""
        return Extras()
