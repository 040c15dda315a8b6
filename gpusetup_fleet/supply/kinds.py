"""deb and rpm packages: how to find dependencies, and how to read and write a repository."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from gpusetup_fleet.supply import apt_repository, rpm_repository
from gpusetup_fleet.supply.apt_repository import AptRoot
from gpusetup_fleet.supply.fetching import Pool
from gpusetup_fleet.supply.root import Entry, Extras, Root
from gpusetup_fleet.supply.rpm_root import RpmRoot
from gpusetup_fleet.supply.signing import Signer


class _Repository(Protocol):
    def read(self, place: Path) -> list[Entry]:
        """Return the packages of a repository; none if it does not exist."""

    def extras_in(self, place: Path, signer: Signer) -> Extras:
        """Return module streams and keys of a published repository."""

    def prove(self, paths: Iterable[Path], extras: Extras) -> None:
        """Raise if packages whose index is unsigned lack a valid signature of their own."""

    def publish(self, place: Path, entries: Iterable[Entry], pool: Pool, signer: Signer, extras: Extras) -> None:
        """Write the repository in one step: readers see the old or the new one."""


class Kind(NamedTuple):
    """One kind of packages."""

    name: str
    root: type[Root]
    repository: _Repository


DEB = Kind("deb", AptRoot, apt_repository)
RPM = Kind("rpm", RpmRoot, rpm_repository)
_KINDS = {"apt": DEB, "dnf": RPM, "zypper": RPM}


def kind_for(manager: str | None) -> Kind:
    """Return the kind of packages of a package manager."""
    return _KINDS[manager or "apt"]


def kind_at(place: Path) -> Kind:
    """Return the kind of an existing repository."""
    return RPM if (place / "repodata").is_dir() else DEB
