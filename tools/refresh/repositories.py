"""New drivers, CUDA, cuDNN and NCCL in NVIDIA's package repositories.

One repository of each kind is read: all directories get the same releases. A list of packages counts only if its digest
is in the repository's index, so a half-published one does not. Hosts verify packages before they install them; a row
here is only a number.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import re
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec

from gpusetup.errors import GpuSetupError
from gpusetup.model.repos import ReposFile
from gpusetup.versions import cuda_minor, nv
from gpusetup_fleet.supply import apt_repository, rpm_repository
from tools.refresh.asking import Fault
from tools.refresh.drivers import VERSION, add_driver
from tools.refresh.gathering import Publication

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tools.refresh.asking import Place
    from tools.refresh.gathering import Gathering

REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
_LOOKED_AT = {"deb": "ubuntu2404/x86_64", "rpm": "rhel9/x86_64"}
_SOURCE = Publication("cuda_repositories", "Package repositories of CUDA", "NVIDIA", f"{REPOSITORIES}/")
_INDEX, _LIST = 4 << 20, 256 << 20
_DIGEST = re.compile(r"^ ([0-9a-f]{64}) +[0-9]+ (?:\./)?(Packages(?:\.gz|\.xz)?)$", re.MULTILINE)
_REPO = "{http://linux.duke.edu/metadata/repo}"
_NUMBER = r"[0-9]+(?:\.[0-9]+){1,3}"


def look(found: Gathering, places: Mapping[str, Place]) -> None:
    """Add the new releases of both kinds of repositories; one that cannot be read does not stop the other."""
    faults = []
    for kind, directory in _LOOKED_AT.items():
        place = places["repositories"].below(directory)
        try:
            packages = set(_deb(place) if kind == "deb" else _rpm(place))
        except (Fault, GpuSetupError) as fault:
            faults.append(f"{directory}: {fault}")
            continue
        _add(found, kind, packages)
    if len(faults) == len(_LOOKED_AT):
        raise Fault("; ".join(faults))
    for text in faults:
        found.leave_out(text)


def _deb(place: Place) -> Iterator[tuple[str, str]]:
    """Yield name and version of the packages of an apt repository."""
    index = place.read("Release", _INDEX).decode("utf-8", "replace")
    digests = {name: digest for digest, name in _DIGEST.findall(index)}
    name = next((name for name in ("Packages.gz", "Packages.xz", "Packages") if name in digests), "")
    if not name:
        raise Fault(f"{place}/Release names no list of packages with its SHA-256: is it a login page?")
    content = _unpacked(name, _proven(place, name, digests[name]))
    for entry in apt_repository.entries_of(content.decode("utf-8", "replace"), str(place)):
        yield entry.name, entry.version


def _rpm(place: Place) -> Iterator[tuple[str, str]]:
    """Yield name and version of the packages of an rpm repository."""
    index = place.read("repodata/repomd.xml", _INDEX)
    try:
        root = ET.fromstring(index)
        data = next(item for item in root.iter(f"{_REPO}data") if item.get("type") == "primary")
        name = (data.find(f"{_REPO}location").get("href") or "").rpartition("/")[2]  # type: ignore[union-attr]
        checksum = data.find(f"{_REPO}checksum")
        assert checksum is not None
        digest = (checksum.text or "").strip() if checksum.get("type") == "sha256" else ""
    except (ET.ParseError, StopIteration, AttributeError, AssertionError) as error:
        raise Fault(f"{place}/repodata/repomd.xml is no index, or not all of it: {error}") from error
    if not digest or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise Fault(f"{place}/repodata/repomd.xml names no list of packages with its SHA-256")
    content = _proven(place, f"repodata/{name}", digest)
    _unpacked(name, content)  # what grows without end is refused before anything reads it
    with tempfile.TemporaryDirectory() as folder:
        repodata = Path(folder) / "repodata"
        repodata.mkdir()
        (repodata / "repomd.xml").write_bytes(index)
        (repodata / name).write_bytes(content)
        try:
            entries = [(entry.name, entry.version) for entry in rpm_repository.entries_of(Path(folder), str(place))]
        except (ET.ParseError, AssertionError, OSError, EOFError) as error:
            raise Fault(f"{place}/repodata/{name} is no list of packages: {error}") from error
    yield from entries


def _proven(place: Place, name: str, digest: str) -> bytes:
    """Return a list that matches its digest in the index: the two disagree for minutes after a release."""
    content = b""
    for _again in range(2):
        content = place.read(name, _LIST)
        if hashlib.sha256(content).hexdigest() == digest:
            return content
    raise Fault(f"{place}/{name} is not the list that the index names: half published; try again in some minutes")


def _unpacked(name: str, content: bytes) -> bytes:
    """Return what is in a compressed list, at most so much of it."""
    try:
        if name.endswith(".gz"):
            unzipping = zlib.decompressobj(wbits=31)
            found = unzipping.decompress(content, _LIST)
            whole = unzipping.eof
        elif name.endswith((".xz", ".bz2")):
            other: Any = lzma.LZMADecompressor() if name.endswith(".xz") else bz2.BZ2Decompressor()
            found = other.decompress(content, _LIST)
            whole = other.eof
        elif "." not in name or name.endswith(".xml"):
            return content
        else:
            raise Fault(f"{name} is packed in a way that is not read here")
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise Fault(f"{name} cannot be unpacked: {error}") from error
    if not whole:
        raise Fault(f"{name} breaks off, or is longer than {_LIST >> 20} MiB")
    return found


def _add(found: Gathering, kind: str, packages: Iterable[tuple[str, str]]) -> None:
    repos = msgspec.convert(found.documents["repos"], ReposFile)
    named: dict[str, set[str]] = {}
    for name, version in packages:
        named.setdefault(name, set()).add(version.rpartition(":")[2])
    _drivers(found, repos, named)
    for library in repos.libraries:
        if library.format == kind:
            for pattern in library.packages:
                packaged = _packaged(pattern, library.pin, named)
                for version in sorted(packaged, key=nv):
                    _ADD[library.component](found, version, packaged[version])


def _drivers(found: Gathering, repos: ReposFile, named: Mapping[str, set[str]]) -> None:
    branches = {row["branch"]: row for row in found.rows("driver", "branches")}
    wanted = {
        package.replace("{branch}", str(branch))
        for row in repos.drivers
        for package in row.packages
        for branch in branches
    }
    versions = {version.partition("-")[0] for name in wanted for version in named.get(name, ())}
    for version in sorted((text for text in versions if VERSION.fullmatch(text)), key=nv):
        branch = branches.get(int(version.partition(".")[0]))
        if version in found.versions("driver", "versions"):
            continue
        if branch is None:
            found.leave_out(
                f"driver {version} is left out: R{version.partition('.')[0]} is new: a package tells neither its CUDA "
                "nor its GPUs; a newer gpusetup will"
            )
        elif not branch.get("latest") or nv(version) > nv(branch["latest"]):
            add_driver(found, version, _SOURCE)


def _packaged(pattern: str, pin: str, named: Mapping[str, set[str]]) -> dict[str, list[tuple[str, str]]]:
    """Return a library's versions with the CUDA and the versions of its packages, by the matrix's naming rule."""
    name_of = re.compile(
        re.escape(pattern)
        .replace(r"\{minor\}", r"(?P<minor>[0-9]+-[0-9]+)")
        .replace(r"\{major\}", r"(?P<major>[0-9]+)")
    )
    version_of = re.compile(
        re.escape(pin)
        .replace(r"\{version\}", rf"(?P<version>{_NUMBER})")
        .replace(r"\{dotted\}", r"(?P<dotted>[0-9]+\.[0-9]+)")
    )
    seen: dict[str, list[tuple[str, str]]] = {}
    for name, versions in named.items():
        match = name_of.fullmatch(name)
        for text in versions if match else ():
            told = version_of.fullmatch(text)
            if match and told:
                about = match.groupdict() | told.groupdict()
                cuda = about.get("dotted") or (about.get("minor") or about.get("major") or "").replace("-", ".")
                seen.setdefault(told["version"], []).append((cuda, text))
    return seen


def _cuda(found: Gathering, version: str, packages: list[tuple[str, str]]) -> None:
    del packages
    row = next((row for row in found.rows("cuda", "releases") if row["version"] == version), None)
    if row is not None and row.get("note", "").startswith("read by") and row.get("system") is False:
        found.change("cuda", "releases", version, _SOURCE, system=True)
    elif row is None and nv(version) > max(nv(item) for item in found.versions("cuda")):
        found.leave_out(f"CUDA {version} is in the repository, and nothing tells its lowest driver: it is left out")


def _cudnn(found: Gathering, version: str, packages: list[tuple[str, str]]) -> None:
    majors = sorted({int(cuda.partition(".")[0]) for cuda, _text in packages})
    known = {row["major"] for row in found.rows("cuda", "majors")}
    if version in found.versions("cudnn") or nv(version) < max(nv(item) for item in found.versions("cudnn")):
        return
    if set(majors) <= known:
        found.add("cudnn", "releases", {"version": version, "cuda_majors": majors}, _SOURCE)
    else:
        found.leave_out(f"cuDNN {version} is left out: it is for CUDA {', '.join(map(str, majors))}")


def _nccl(found: Gathering, version: str, packages: list[tuple[str, str]]) -> None:
    """Add packages of a release of NCCL; a person reads from its wheels which GPUs they have code for."""
    minors = {row["minor"] for row in found.rows("cuda", "releases")}
    new = [
        {"cuda": cuda, "kind": "package", "version": text}
        for cuda, text in sorted(set(packages), key=lambda item: nv(item[0]))
        if cuda_minor(cuda) in minors
    ]
    if not new:
        return
    row = next((row for row in found.rows("nccl", "releases") if row["version"] == version), None)
    if row is None:
        if nv(version) > max(nv(item) for item in found.versions("nccl")):
            found.add("nccl", "releases", {"version": version, "builds": new}, _SOURCE)
        return
    if nv(version) < max(nv(item) for item in found.versions("nccl")):
        return  # what is older was looked over by a person
    known = {build["version"] for build in row.get("builds", ())}
    more = [build for build in new if build["version"] not in known]
    if more:
        found.change("nccl", "releases", version, _SOURCE, builds=[*row.get("builds", ()), *more])


_ADD = {"cuda": _cuda, "cudnn": _cudnn, "nccl": _nccl}
