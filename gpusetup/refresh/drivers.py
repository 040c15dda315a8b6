"""New releases out of documents that NVIDIA publishes for programs: they become records that say where they are from.

What a document does not tell is not made up: a branch that is new to us has no CUDA and no architectures there, so it
waits for a person. What looks wrong is left out and said.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.errors import BadInputError, wrong_field
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RELEASES_JSON", "with_drivers"]

RELEASES_JSON = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
_SOURCE = "releases_json"
_VERSION = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{1,2})?")
_ENDS = {"production branch": "PB", "lts branch": "LTSB", "new feature branch": "NFB"}


class _Release(msgspec.Struct, frozen=True):
    """What counts about a release."""

    release_version: str
    release_date: str = ""


class _Branch(msgspec.Struct, frozen=True):
    """What counts about a branch."""

    driver_info: tuple[_Release, ...]
    type: str = ""


def with_drivers(content: bytes, known: dict[str, Any], today: dt.date) -> tuple[dict[str, Any], list[str]]:
    """Return driver.json with the releases that NVIDIA's list has beyond it, and what was left out and why."""
    try:
        listed = msgspec.json.decode(content, type=dict[str, _Branch])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, field = wrong_field(error)
        raise BadInputError(
            "GS-224", f"this is not NVIDIA's list of drivers, or not all of it: {what}", path=field,
            hint="fetch it again; nothing was changed",
        ) from error  # fmt: skip
    branches = {branch["branch"]: branch for branch in known["branches"]}
    versions = {item["version"] for item in known["versions"]}
    told = list(_stale(listed, branches))
    added: list[dict[str, Any]] = []
    for name, branch in listed.items():
        for release in branch.driver_info:
            if release.release_version in versions:
                continue
            if why := _unfit(name, release, branches, today):
                told.append(f"{release.release_version} is left out: {why}")
                continue
            versions.add(release.release_version)
            added.append(_record(int(name), release, today))
    return _joined(known, branches, added, today), told


def _unfit(name: str, release: _Release, branches: dict[int, dict[str, Any]], today: dt.date) -> str:
    version = release.release_version
    if not _VERSION.fullmatch(version):
        return "that is no version of a driver"
    if not name.isdigit() or version.partition(".")[0] != name:
        return f"it stands under R{name}"
    if int(name) not in branches:
        return f"R{name} is new: the list tells neither its CUDA nor its GPUs; a newer gpusetup will"
    try:
        day = dt.date.fromisoformat(release.release_date)
    except ValueError:
        return f"its day is {release.release_date or 'missing'}"
    return f"it is of {day}, which is still to come" if day > today + dt.timedelta(days=2) else ""


def _stale(listed: dict[str, _Branch], branches: dict[int, dict[str, Any]]) -> Iterator[str]:
    """Yield where a list is behind what is known: a copy that nobody renewed, or one that broke off."""
    for number, branch in branches.items():
        found = listed.get(str(number))
        latest, versions = branch.get("latest"), [item.release_version for item in found.driver_info] if found else []
        newest = max((nv(item) for item in versions if _VERSION.fullmatch(item)), default=None)
        if latest and newest is not None and newest < nv(latest):
            yield f"R{number}: the list ends before {latest}, which is known: it may be an old copy"
        kind = _ENDS.get(found.type.strip().lower()) if found is not None else None
        if kind and branch.get("kind") not in (kind, None):
            yield f"R{number}: the list calls it {kind}, the matrix {branch['kind']}: the matrix is kept"


def _record(branch: int, release: _Release, today: dt.date) -> dict[str, Any]:
    return {
        "sources": [_SOURCE],
        "confidence": "vendor",
        "note": f"read by a program on {today}; nobody of gpusetup has tried it",
        "version": release.release_version,
        "branch": branch,
        "date": release.release_date,
    }


def _joined(
    known: dict[str, Any], branches: dict[int, dict[str, Any]], added: list[dict[str, Any]], today: dt.date
) -> dict[str, Any]:
    if not added:
        return known
    newest = dict(branches)
    for item in added:
        branch = newest[item["branch"]]
        if not branch.get("latest") or nv(branch["latest"]) < nv(item["version"]):
            newest[item["branch"]] = {**branch, "latest": item["version"]}
    source = {"title": "Data centre drivers by branch", "publisher": "NVIDIA", "url": RELEASES_JSON, "seen": str(today)}
    return {
        **known,
        "date": str(today),
        "sources": {**known["sources"], _SOURCE: source},
        "branches": [newest[branch["branch"]] for branch in known["branches"]],
        "versions": sorted([*known["versions"], *added], key=lambda item: nv(item["version"])),
    }
