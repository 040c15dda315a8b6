"""A package as an index describes it, and what a repository has beside its packages: alike for apt, dnf and zypper."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpusetup.supply.fetching import Wanted

__all__ = ["Beside", "Entry", "Need"]


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


class Beside(NamedTuple):
    """What a repository of rpm packages has beside them."""

    modules: str = ""
    """The streams of its modules."""
    keys: tuple[bytes, ...] = ()
    """Whose signatures its packages have."""
