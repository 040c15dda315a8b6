"""Compare an index with the matrix's rows of a package: a document to keep, and a line per difference.

Fields that the index does not have stay: CUDA and GPU code that were measured once, facts from documents. A release
that the index no longer lists keeps its row, with the day on which it was last seen.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpusetup.model.record import CANDIDATE
from tools.refresh import reading
from tools.refresh.asking import Fault
from tools.refresh.known_packages import PACKAGES
from tools.refresh.rows import assemble

if TYPE_CHECKING:
    from collections.abc import Collection

    from tools.refresh.index import File, Index

_LATE = dt.timedelta(days=30)
_ORDER = ("kind", "date", "yanked", "pythons", "glibc", "cuda", "linked", "code", "requires")


class Findings:
    """The result for one package: its new file, the differences, and what could not be read."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.lines: list[str] = []
        self.faults: list[str] = []


def refreshed(
    name: str, stored: dict[str, Any], index: Index, relevant: Collection[str], *, again: bool, known_too: bool = True
) -> Findings:
    """Return a package's file with today's data of the index.

    `again`: also measure known releases again. Without `known_too` existing rows stay as they are.
    """
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    files, left_out = index.files(name)
    known = {Version(item["version"]): item for item in stored["releases"]}
    by_version: dict[Version, list[File]] = {}
    for file in files:
        by_version.setdefault(file.version, []).append(file)
    _not_older(name, known, by_version)
    findings = Findings(stored)
    findings.faults += [f"left out {text}" for text in left_out]
    fresh: dict[Version, dict[str, Any]] = {}
    wanted = [version for version in _wanted(stored, by_version) if known_too or version not in known]
    for version in sorted(wanted, reverse=True):
        before = known.get(version)
        try:
            fresh[version] = _read(name, by_version[version], index, relevant, before, again=again)
        except Fault as error:
            kept = "its row stays as it is" if before else "no row is made"
            findings.faults.append(f"{version}: {' '.join(str(error).split())}; {kept}")
    if not (known_too or fresh):
        return findings
    title = stored["sources"].get("index", {}).get("title") or f"package index METADATA of {name}"
    document = assemble(name, [], {}, title=title, seen=today)
    document["sources"] |= {key: source for key, source in stored["sources"].items() if key != "index"}
    releases = {version: _kept(item, known.get(version)) for version, item in fresh.items()}
    for version, item in known.items():
        if version not in releases:
            releases[version] = _as_seen(item, document, stored)
            if known_too and version not in by_version:
                findings.lines.append(f"? {item['version']}: not on this index any more; its row stays as it is")
    document["releases"] = [releases[version] for version in sorted(releases, reverse=True)]
    findings.document = document
    findings.lines[:0] = differences(stored["releases"], document["releases"])
    return findings


def _not_older(name: str, known: dict[Version, Any], there: dict[Version, Any]) -> None:
    """Raise if a list lacks the newest known releases, as an outdated mirror or cache does."""
    final = [version for version in known if not version.is_prerelease]
    if final and there and max(final) > max(there):
        raise Fault(
            f"the index knows {name} up to {max(there)} only, and {max(final)} was seen before: "
            "it is a copy that stood still; ask another one with --index"
        )
    if not there:
        raise Fault(f"the index lists no release of {name}")


def _wanted(stored: dict[str, Any], there: dict[Version, list[File]]) -> list[Version]:
    """Return the releases to read: those with a row, and those published since the rows were read.

    Older releases without a row were left out on purpose. A mirror may list a release some days late.
    """
    known = {Version(item["version"]) for item in stored["releases"]}
    early = any(version.is_prerelease for version in known)
    since = (dt.date.fromisoformat(stored["date"]) - _LATE).isoformat() if known else ""
    found = [version for version in there if version in known]
    for version, files in there.items():
        date = min((file.date for file in files if file.date), default="")
        new = (date >= since or version > max(known)) and not version.is_devrelease
        if version not in known and new and not all(f.yanked for f in files) and (early or not version.is_prerelease):
            found.append(version)
    return found


def _read(
    name: str,
    files: list[File],
    index: Index,
    relevant: Collection[str],
    before: dict[str, Any] | None,
    *,
    again: bool,
) -> dict[str, Any]:
    about = PACKAGES[name]
    measure = again or before is None
    row = reading.read(index, files, relevant, inside=about.get("inside", "") if measure else "")
    if before is None and not row["date"]:
        raise Fault("the index does not say when it was uploaded")
    kernels: dict[str, list[dict[str, Any]]] = {}
    asked = row["requires"] | (row.get("extras") or {}).get(about.get("whole", ""), {})
    for kernel in about.get("kernels", ()) if measure else ():
        wanted = asked.get(kernel, "").removeprefix("==")
        listed = [file for file in index.files(kernel)[0] if str(file.version) == wanted] if wanted else []
        if listed:
            kernels[kernel] = [reading.read(index, listed, (), inside="libraries")]
    found: dict[str, Any] = assemble(name, [row], kernels, title="", seen="")["releases"][0]
    if before is not None and not row["date"]:
        found["date"] = before["date"]
    return found


def _kept(fresh: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return the new row with fields measured before and not now, and the note that no person has checked it."""
    if before is None:
        return fresh
    if not any(field in fresh for field in ("cuda", "linked", "code")):
        fresh |= {field: before[field] for field in ("cuda", "linked", "code") if field in before}
    unchecked = before.get("note", "").startswith(CANDIDATE)
    kept = ("compilers", "note") if unchecked else ("compilers",)
    return fresh | {field: before[field] for field in kept if field in before and field not in fresh}


def _as_seen(item: dict[str, Any], document: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return a row that was not read today, with a source that has the date of its reading."""
    if "index" not in item["sources"]:
        return item
    source = stored["sources"]["index"]
    document["sources"][f"index-{source['seen']}"] = source
    return item | {"sources": [f"index-{source['seen']}" if key == "index" else key for key in item["sources"]]}


def differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """Return a line for each release that is new, and one for each field that changed."""
    known = {item["version"]: item for item in before}
    lines = []
    for item in after:
        old = known.get(item["version"])
        if old is None:
            lines.append(f"+ {item['version']}: {_summary(item)}")
            continue
        for field in (*_ORDER, *sorted({*old, *item} - {*_ORDER, "version", "sources"})):
            lines += _changed(item["version"], field, old.get(field), item.get(field))
    return lines


def _changed(version: str, field: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if isinstance(old or {}, dict) and isinstance(new or {}, dict):
        old, new = old or {}, new or {}
        parts = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        return [f"~ {version}: {field} {key}: {_told(old.get(key))} → {_told(new.get(key))}" for key in parts]
    return [f"~ {version}: {field}: {_told(old)} → {_told(new)}"]


def _told(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)


def _summary(item: dict[str, Any]) -> str:
    said = [
        item["date"],
        item["kind"],
        *(f"Python on {arch}: {_told(names)}" for arch, names in item.get("pythons", {}).items()),
        *(f"glibc {text} on {arch}" for arch, text in item.get("glibc", {}).items()),
        f"CUDA {_told(item['cuda'])}" if item.get("cuda") else "CUDA unknown",
        *(f"{name} {text}" for name, text in item.get("requires", {}).items()),
    ]
    return "; ".join(said) + f" (read: {item['read']})"
