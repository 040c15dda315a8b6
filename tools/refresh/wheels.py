"""New releases on the package index: wheels of cuDNN and CuPy, patches of torch, packages above them.

An index has versions, dates, Pythons and requirements, but not the GPUs that a build has code for: a patch inherits
those of the release that it patches and is marked as such; a person must add a new minor release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpusetup.matrix.load import package_files
from gpusetup.model.record import CANDIDATE
from gpusetup.versions import nv
from tools.refresh import reading
from tools.refresh.asking import Fault
from tools.refresh.gathering import Publication, day_that_was
from tools.refresh.packages import refreshed
from tools.refresh.rows import pythons_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.refresh.gathering import Gathering
    from tools.refresh.index import File, Index


def by_version(index: Index, name: str) -> dict[Version, list[File]]:
    """Return a package's files that were not withdrawn, by version."""
    found: dict[Version, list[File]] = {}
    for file in index.files(name)[0]:
        if not file.yanked:
            found.setdefault(file.version, []).append(file)
    if not found:
        raise Fault(f"the index lists no release of {name}")
    return found


def fresh_files(index: Index, name: str, known: set[str]) -> Iterator[tuple[str, list[File]]]:
    """Yield final releases with wheels newer than the newest known one, of all or of their family; oldest first."""
    there = by_version(index, name)
    newest = max(Version(version) for version in known)
    families = {version.release[:2]: version for version in sorted(map(Version, known))}
    if max(there) < newest:
        raise Fault(f"the index knows {name} up to {max(there)} only, and {newest} was seen before: an old copy")
    for version in sorted(there):
        files = [file for file in there[version] if file.tags]
        final = not (version.is_prerelease or version.is_postrelease or version.local)
        if final and files and version > families.get(version.release[:2], newest):
            yield str(version), files


def cudnn(found: Gathering, index: Index) -> None:
    """Add releases of cuDNN that have wheels, for each known CUDA major."""
    majors = sorted(row["major"] for row in found.rows("cuda", "majors"))
    source = Publication("cudnn_index", "Wheels of cuDNN", "NVIDIA", "https://pypi.org/project/nvidia-cudnn-cu13/")
    seen: dict[str, list[int]] = {}
    for major in majors:
        known = {row["version"] for row in found.rows("cudnn", "releases") if major in row.get("wheels", ())}
        if known:
            for version, _files in fresh_files(index, f"nvidia-cudnn-cu{major}", known):
                seen.setdefault(version, []).append(major)
    for version in sorted(seen, key=nv):
        row = next((row for row in found.rows("cudnn", "releases") if row["version"] == version), None)
        if row is None:
            record = {"version": version, "cuda_majors": seen[version], "wheels": seen[version]}
            found.add("cudnn", "releases", record, source)
        elif not row.get("wheels"):
            more = sorted({*row["cuda_majors"], *seen[version]})
            found.change("cudnn", "releases", version, source, cuda_majors=more, wheels=seen[version])


def cupy(found: Gathering, index: Index) -> None:
    """Add patches of CuPy, with the tested CUDA of the release before."""
    names = dict.fromkeys(row["package"] for row in found.rows("cupy", "releases"))
    for name in names:
        rows = [row for row in found.rows("cupy", "releases") if row["package"] == name]
        source = Publication(
            f"index_{name.replace('-', '_')}", f"Index of {name}", "CuPy", f"https://pypi.org/project/{name}/"
        )
        for version, files in fresh_files(index, name, {row["version"] for row in rows}):
            elder = next(
                (row for row in reversed(rows) if Version(row["version"]).release[:2] == nv(version).minor), None
            )
            if elder is None or elder.get("excluded"):
                found.leave_out(f"{name} {version} is left out: nobody has looked which CUDA it was tested with")
                continue
            row = reading.read(index, files, {"numpy"})
            if why := day_that_was(row["date"], found.today):
                found.leave_out(f"{name} {version} is left out: {why}")
                continue
            record = {field: elder[field] for field in elder if field not in ("sources", "confidence", "note")}
            record |= {"version": version, "date": row["date"], "pythons": pythons_of(row)}
            if row["requires"].get("numpy"):
                record["numpy"] = row["requires"]["numpy"]
            why = f"the CUDA and the GPUs that it was tested with are those of {elder['version']}"
            found.add(
                "cupy", "releases", record, source, why=why, order=lambda row: (row["package"], nv(row["version"]))
            )


def _cupy_order(row: dict[str, Any]) -> tuple[str, Version]:
    return row["package"], Version(row["version"])


def packages(found: Gathering, index: Index) -> None:
    """Add releases of the packages above the frameworks; one that cannot be read does not stop the others."""
    names = [name.rpartition("/")[2] for name in package_files()]
    relevant = {*names}
    for name in names:
        for item in found.rows(f"frameworks/{name}", "releases"):
            relevant |= set(item.get("requires", ()))
    faults = 0
    for name in names:
        component = f"frameworks/{name}"
        stored = found.documents[component]
        before = found.versions(component)
        try:
            findings = refreshed(name, stored, index, relevant, again=False, known_too=False)
        except Fault as fault:
            faults += 1
            found.leave_out(f"{name}: {fault}")
            continue
        for text in findings.faults:
            found.leave_out(f"{name} {text}")
        if findings.document is not stored:
            found.documents[component] = findings.document | {
                "releases": [
                    item if item["version"] in before else _candidate(item, found)
                    for item in findings.document["releases"]
                ]
            }
    if faults == len(names):
        raise Fault("no package could be read")


def _candidate(item: dict[str, Any], found: Gathering) -> dict[str, Any]:
    said = item.get("note") or "nobody of gpusetup has tried it"
    return item | {"note": f"{CANDIDATE} {found.today}; {said}"}
