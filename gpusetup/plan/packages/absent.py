"""Why a host gets no packages from us, and what to do then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.repos import RepoDirectory, ReposFile

__all__ = ["Absence", "absence"]


class Absence(NamedTuple):
    """What is said of it."""

    message: str
    note: str
    hint: str


def absence(repos: ReposFile, facts: HostFacts, source: str, directory: RepoDirectory | None) -> Absence:
    """Return why no packages can be installed here."""
    label = facts.os.label
    if source == "distro":
        return Absence(
            f"{facts.os.name} has no driver packages that gpusetup knows",
            "it knows those of " + ", ".join(sorted({name for row in repos.distro_drivers for name in row.systems})),
            "use NVIDIA's: gpusetup_source=nvidia"
            if directory is not None
            else "install a driver by hand; gpusetup keeps it",
        )
    own = any(label in row.systems for row in repos.distro_drivers)
    return Absence(
        f"NVIDIA has no repository for {label} on {facts.arch}",
        "",
        "use the distribution's: gpusetup_source=distro" if own else "install a driver by hand; gpusetup keeps it",
    )
