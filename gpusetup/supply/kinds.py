"""The two kinds of packages: how a closure is found, how a repository is read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpusetup.supply import apt_repository, rpm_repository
from gpusetup.supply.apt_repository import AptRoot
from gpusetup.supply.rpm_root import RpmRoot

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.model.record import Arch
    from gpusetup.supply.fetching import Pool, Wanted
    from gpusetup.supply.root import Entry, Extras, Root
    from gpusetup.supply.signing import Signer


class _Roots(Protocol):
    def __call__(
        self, folder: Path, system: str, arch: Arch, archives: tuple[str, ...] = (), *, alone: bool = False
    ) -> Root:
        """Make a root; `alone`: without the distribution's own archives."""


class _Repository(Protocol):
    def read(self, place: Path) -> list[Entry]:
        """Return what a repository has; nothing where there is none."""

    def extras_in(self, place: Path, signer: Signer) -> Extras:
        """Return what a repository that was published has beside its packages."""

    def prove(self, paths: Iterable[Path], extras: Extras) -> None:
        """Refuse packages that nothing but their own signature vouches for, where that does not hold."""

    def publish(self, place: Path, entries: Iterable[Entry], pool: Pool, signer: Signer, extras: Extras) -> list[Path]:
        """Make the repository; whoever reads sees the old one or the new one."""

    def file_name(self, item: Wanted) -> str:
        """Return a package's file name there."""


class Kind(NamedTuple):
    """One kind of packages."""

    name: str
    root: _Roots
    repository: _Repository


DEB = Kind("deb", AptRoot, apt_repository)
RPM = Kind("rpm", RpmRoot, rpm_repository)
_KINDS = {"apt": DEB, "dnf": RPM, "zypper": RPM}


def kind_for(manager: str | None) -> Kind:
    """Return the kind of packages that a package manager takes."""
    return _KINDS[manager or "apt"]


def kind_at(place: Path) -> Kind:
    """Return the kind of a repository that is there."""
    return RPM if (place / "repodata").is_dir() else DEB
