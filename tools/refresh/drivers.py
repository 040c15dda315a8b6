"""New drivers, from NVIDIA's machine-readable list.

The list has no CUDA and no architectures, so a person must add a new branch. Suspicious rows are left out and
reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.errors import wrong_field
from gpusetup.versions import nv
from tools.refresh.asking import Contradiction
from tools.refresh.gathering import Publication, day_that_was

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.refresh.asking import Place
    from tools.refresh.gathering import Gathering

RELEASES_JSON = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
SOURCE = Publication("releases_json", "Data centre drivers by branch", "NVIDIA", RELEASES_JSON)
VERSION = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{1,2})?")
_ENDS = {"production branch": "PB", "lts branch": "LTSB", "new feature branch": "NFB"}


class _Release(msgspec.Struct, frozen=True):
    """The relevant fields of a release."""

    release_version: str
    release_date: str = ""


class _Branch(msgspec.Struct, frozen=True):
    """The relevant fields of a branch."""

    driver_info: tuple[_Release, ...]
    type: str = ""


def look(found: Gathering, places: Mapping[str, Place]) -> None:
    """Add the drivers of NVIDIA's list that are new."""
    with_drivers(found, places["drivers"].read())


def with_drivers(found: Gathering, content: bytes) -> None:
    """Add the new drivers of a list; report what is left out, and why."""
    try:
        listed = msgspec.json.decode(content, type=dict[str, _Branch])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, field = wrong_field(error)
        raise Contradiction(f"this is not NVIDIA's list of drivers, or not all of it: {what} at {field}") from error
    branches = {branch["branch"]: branch for branch in found.rows("driver", "branches")}
    for text in _stale(listed, branches):
        found.leave_out(text)
    for name, branch in listed.items():
        for release in branch.driver_info:
            if release.release_version in found.versions("driver", "versions"):
                continue
            why = _unfit(name, release, branches) or day_that_was(release.release_date, found.today)
            if why:
                found.leave_out(f"driver {release.release_version} is left out: {why}")
            else:
                add_driver(found, release.release_version, SOURCE, date=release.release_date)


def add_driver(found: Gathering, version: str, source: Publication, **more: str) -> None:
    """Add a driver of a known branch, as its latest one if it is."""
    number = int(version.partition(".")[0])
    found.add("driver", "versions", {"version": version, "branch": number, **more}, source)
    branches = [
        branch | {"latest": version}
        if branch["branch"] == number and (not branch.get("latest") or nv(branch["latest"]) < nv(version))
        else branch
        for branch in found.rows("driver", "branches")
    ]
    found.documents["driver"]["branches"] = branches


def _unfit(name: str, release: _Release, branches: dict[int, dict[str, Any]]) -> str:
    version = release.release_version
    if not VERSION.fullmatch(version):
        return "that is no version of a driver"
    if not name.isdigit() or version.partition(".")[0] != name:
        return f"it stands under R{name}"
    if int(name) not in branches:
        return f"R{name} is new: the list tells neither its CUDA nor its GPUs; a newer gpusetup will"
    return ""


def _stale(listed: dict[str, _Branch], branches: dict[int, dict[str, Any]]) -> Iterator[str]:
    """Yield where a list disagrees with the matrix: an older end, or another kind of branch."""
    for number, branch in branches.items():
        found = listed.get(str(number))
        latest, versions = branch.get("latest"), [item.release_version for item in found.driver_info] if found else []
        newest = max((nv(item) for item in versions if VERSION.fullmatch(item)), default=None)
        if latest and newest is not None and newest < nv(latest):
            yield f"R{number}: the list ends before {latest}, which is known: it may be an old copy"
        kind = _ENDS.get(found.type.strip().lower()) if found is not None else None
        if kind and branch.get("kind") not in (kind, None):
            yield f"R{number}: the list calls it {kind}, the matrix {branch['kind']}: the matrix is kept"
