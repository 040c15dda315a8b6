"""Why a host gets no packages from us, and what to do then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpusetup.plan.packages.names import covering, named

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.repos import RepoDirectory, ReposFile
    from gpusetup.model.stack import Stack

__all__ = ["Absence", "absence"]


class Absence(NamedTuple):
    """What is said of it."""

    message: str
    note: str
    hint: str


def absence(repos: ReposFile, facts: HostFacts, source: str, directory: RepoDirectory | None, stack: Stack) -> Absence:
    """Return why no packages can be installed here."""
    label = facts.os.label
    if directory is not None and directory.family == "suse":
        return _by_hand(repos, facts, directory, stack)
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


def _by_hand(repos: ReposFile, facts: HostFacts, directory: RepoDirectory, stack: Stack) -> Absence:
    cpu = repos.repository.arches["x86_64" if facts.arch == "x86_64" else "aarch64"]
    url = repos.repository.url.format(directory=directory.directory, arch=cpu)
    driver, what = stack.driver, ""
    if driver is not None:
        rows = covering((row for row in repos.drivers if row.family == directory.family), int(driver.branch))
        names = next((row.packages for row in rows if row.module == driver.module), ())
        what = "".join(f" {named(name, branch=driver.branch, version=driver.version)}" for name in names)
    return Absence(
        f"gpusetup cannot drive zypper yet: on {facts.os.label} it installs nothing",
        f"NVIDIA's repository for it is {url}",
        f"install the driver by hand and repeat, it is kept: zypper addrepo --refresh {url} cuda-{directory.directory}"
        + (f"; zypper install{what}" if what else ""),
    )
