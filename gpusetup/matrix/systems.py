"""Find a distribution by any of its names: `jammy`, `RHEL 8`, `ubuntu 24.04`; match vGPU guests with hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError
from gpusetup.model.platforms import CloudFile
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.platforms import OsFile, OsRelease, VgpuCloud

_WORD = r"[a-z]+|\d+(?:\.\d+)*"
_CODENAME = r"\(([a-z]+)\)$"
_SILENT = frozenset({"cuda", "enterprise", "gnu", "hat", "linux", "lts", "release", "server", "sp", "stream", "v"})
"""Words that do not distinguish one distribution from another."""


def by_id(matrix: Matrix, name: str | None) -> OsRelease | None:
    """Return the distribution with exactly this id, if the matrix has it."""
    return next((system for system in matrix.os.systems if system.id == name), None)


def codename_of(system: OsRelease | None) -> str | None:
    """Return what Debian or Ubuntu call a release; None for other distributions."""
    found = re.search(_CODENAME, system.name) if system else None
    return found[1] if found else None


def find_system(matrix: Matrix, text: str) -> OsRelease:
    """Return the distribution that a text names, or raise BadInputError with similar ones."""
    lowered = text.strip().lower()
    if (exact := by_id(matrix, lowered)) is not None:
        return exact
    found = list(_named(matrix.os, lowered))
    if len(found) == 1:
        return found[0]
    import difflib

    known = [system.id for system in matrix.os.systems]
    close = [system.id for system in found] or difflib.get_close_matches(
        lowered.replace(" ", ""), known, n=3, cutoff=0.5
    )
    named = [word for word in matrix.os.elsewhere if word in lowered]
    elsewhere = matrix.os.elsewhere[max(named, key=len)] if named else ""  # macos is not cos
    foreign = _without_packages(matrix.os, lowered)
    near = f"{foreign}; " if foreign else f"did you mean {', '.join(close)}? " if close else ""
    raise BadInputError(
        "GS-123",
        f"unknown distribution {text!r}",
        path=f"--os {text!r}",
        hint=(not foreign and elsewhere) or near + "`gpusetup matrix os` lists those that gpusetup knows",
    )


def _without_packages(known: OsFile, text: str) -> str:
    """Return what to type for a derivative or an older release of a known distribution; empty for other texts."""
    words = re.sub(r"[^a-z0-9.]|linux|_", "", text)
    base = next((base for name, base in known.bases.items() if re.match(rf"{name}(?![0-9])", words)), "")
    if base:
        return f"it takes the packages of {base}: --os {base}"
    if releases := [f"{base} ({name})" for name, base in known.bases.items() if name.rstrip("0123456789") == words]:
        return f"name the release whose packages it takes: --os {' or '.join(releases)}"
    name, number = (re.findall(r"^([a-z]+)([0-9]{1,4}(?:\.[0-9]{1,4})?)", words) or [("", "")])[0]
    family = known.said_as.get(name, name)
    oldest = next((system.id for system in known.systems if re.fullmatch(rf"{family}[0-9.]+", system.id)), "")
    if number and oldest and nv(number) < nv(oldest.removeprefix(family)):
        return f"it is older than {oldest}, the oldest here; without --os gpusetup answers for any Linux"
    return ""


def systems_named(matrix: Matrix, text: str) -> list[OsRelease]:
    """Return the distributions that a text names: one, or all releases of a family (`ubuntu`)."""
    lowered = text.strip().lower()
    family = matrix.os.said_as.get(lowered, lowered)
    releases = [system for system in matrix.os.systems if re.fullmatch(re.escape(family) + r"[0-9.]+", system.id)]
    return releases or [find_system(matrix, text)]


def _named(known: OsFile, text: str) -> Iterator[OsRelease]:
    """Yield the systems that match a code name, or a family with a number."""
    tokens = re.findall(_WORD, text.partition("(")[0])
    words = [token for token in tokens if token[0].isalpha() and token not in _SILENT]
    numbers = [token for token in tokens if token[0].isdigit()]
    for system in known.systems:
        if codename_of(system) in words:  # `noble`, `ubuntu noble`
            yield system
    families = {known.said_as.get(word, word) for word in words}
    if len(families) != 1 or not numbers:
        return
    family = families.pop()
    for system in known.systems:
        number = system.id.removeprefix(family)
        if number != system.id and any(_same(number, said) for said in numbers):
            yield system


def _same(known: str, said: str) -> bool:
    """Return whether a number means a release: 24.04, 2404 or 24 for the id 24.04; 8 or 8.10 for the id 8."""
    if "." in known:
        return said in (known, known.replace(".", ""), known.partition(".")[0]) or said.startswith(f"{known}.")
    return said.partition(".")[0] == known


def fitting(host: str, matrix: Matrix) -> tuple[str, ...]:
    """Return the vGPU releases whose guest drivers a host of this release supports, newest first.

    These are its own, the one before, and for a long-term support branch the previous long-term support branch.
    """
    branches = {int(item.vgpu): item.branch for item in matrix.vgpu.branches}
    lasting = {item.branch for item in matrix.driver.branches if item.kind == "LTSB"}
    own = int(host)
    found = {own, own - 1} & set(branches)
    if branches.get(own) in lasting:
        found |= {max((item for item, branch in branches.items() if item < own and branch in lasting), default=own)}
    return tuple(str(item) for item in sorted(found, reverse=True))


def hosts_that_take(guest: str, matrix: Matrix) -> tuple[str, ...]:
    """Return the vGPU releases of hosts that support guest drivers of this release, newest first."""
    hosts = sorted((item.vgpu for item in matrix.vgpu.branches), key=int, reverse=True)
    return tuple(host for host in hosts if guest in fitting(host, matrix))


def files_of(cloud: VgpuCloud, matrix: Matrix) -> tuple[CloudFile, ...]:
    """Return the guest drivers that a cloud is known to offer, newest first."""
    guests = {item.vgpu: item.guest for item in matrix.vgpu.releases}
    by_pattern = (
        CloudFile(vgpu=release, url=cloud.pattern.format(vgpu=release, guest=guests[release]))
        for release in cloud.releases
    )
    return tuple(sorted((*cloud.files, *by_pattern), key=lambda item: nv(item.vgpu), reverse=True))


def is_jetson(kernel: str) -> bool:
    """Return whether a kernel release is of Jetson Linux."""
    return kernel.endswith("tegra")
