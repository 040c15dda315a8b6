"""The bill of materials (CycloneDX) of each package, in NAME.cdx.json next to it."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Iterable
from datetime import datetime, timezone
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from gpusetup_fleet.supply.cyclonedx import bill, component, python_library

SUFFIX = ".cdx.json"
_NAMES = (
    (re.compile(r"gpusetup_(?P<version>[^_]+)_(?P<arch>\w+)\.deb"), "pkg:deb/debian/gpusetup@{version}?arch={arch}"),
    (re.compile(r"gpusetup-(?P<version>.+)\.(?P<arch>\w+)\.rpm"), "pkg:rpm/gpusetup@{version}?arch={arch}"),
    (re.compile(r"gpusetup-(?P<version>.+?)-py3-none-any\.whl"), "pkg:pypi/gpusetup@{version}?file_name={file}"),
    (
        re.compile(r"gpusetup_fleet-(?P<version>.+?)-py3-none-any\.whl"),
        "pkg:pypi/gpusetup-fleet@{version}?file_name={file}",
    ),
    (re.compile(r"gpusetup-stack-(?P<version>.+)\.tar\.gz"), "pkg:generic/gpusetup.stack@{version}?file_name={file}"),
    (re.compile(r"gpusetup-(?P<version>\d.*)\.tar\.gz"), "pkg:pypi/gpusetup@{version}?file_name={file}"),
    (
        re.compile(r"gpusetup-(?P<version>\d.*)-(?P<arch>\w+)\.oci\.tar"),
        "pkg:generic/gpusetup@{version}?file_name={file}",
    ),
    (re.compile(r"gpusetup-(?P<arch>\w+)\.pyz"), "pkg:generic/gpusetup@{version}?file_name={file}"),
)


def write(made: Path, inside: Iterable[dict[str, Any]], moment: int, version: str) -> Path:
    """Write the bill of a package next to it."""
    when = datetime.fromtimestamp(moment, timezone.utc).isoformat().replace("+00:00", "Z")
    path = made.with_name(made.name + SUFFIX)
    path.write_bytes(bill(inside, _subject(made, version), when))
    return path


def _subject(made: Path, version: str) -> dict[str, Any]:
    for pattern, purl in _NAMES:
        if found := pattern.fullmatch(made.name):
            told = {"version": version, **found.groupdict(), "file": made.name}
            where = purl.format(**{name: quote(value, safe="~") for name, value in told.items()})
            digest = hashlib.sha256(made.read_bytes()).hexdigest()
            name = purl.partition("@")[0].rpartition("/")[2]
            return component(name, told["version"], where, digest, "application") | {
                "licenses": [{"license": {"id": "Apache-2.0"}}]
            }
    raise ValueError(f"no kind of package is called like {made.name}")


def libraries_in(site: Path) -> list[dict[str, Any]]:
    """Return the libraries installed in a folder."""
    found = [(canonicalize_name(item.metadata["Name"]), item.version) for item in distributions(path=[str(site)])]
    return [python_library(name, version) for name, version in found if name != "gpusetup"]


def wheels_in(single: Path) -> list[dict[str, Any]]:
    """Return the wheels in the single file."""
    found = []
    with zipfile.ZipFile(single) as archive:
        for name in archive.namelist():
            folder, _, wheel = name.partition("/")
            if folder == "wheels" and not wheel.startswith("gpusetup-"):
                project, version, _build, _tags = parse_wheel_filename(wheel)
                digest = hashlib.sha256(archive.read(name)).hexdigest()
                found.append(python_library(project, str(version), wheel, digest))
    return found


def asked_by(package: Path) -> list[dict[str, Any]]:
    """Return the requirements of a wheel or sdist: libraries with version ranges, resolved at installation."""
    found = []
    for text in HeaderParser().parse(io.StringIO(_metadata(package))).get_all("Requires-Dist") or ():
        wanted = Requirement(text)
        item = python_library(canonicalize_name(wanted.name), "")
        optional = wanted.marker is not None and "extra" in str(wanted.marker)
        item["scope"] = "optional" if optional else "required"
        item["properties"] = [{"name": "gpusetup:requirement", "value": text}]
        found.append(item)
    return found


def _metadata(package: Path) -> str:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return archive.read(name).decode()
    with tarfile.open(package) as archive:
        member = archive.extractfile(f"{package.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert member is not None
        return member.read().decode()
