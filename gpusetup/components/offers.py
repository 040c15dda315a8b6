"""What repositories offer, as a host's own package manager reads them."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from gpusetup.components.judge import versions
from gpusetup.model.package import Package
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.model.plan import Offer


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
