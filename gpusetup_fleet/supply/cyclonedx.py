"""A bill of materials in CycloneDX's JSON: of a bundle, and of gpusetup's own packages."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from packaging.utils import parse_wheel_filename

from gpusetup import __version__
from gpusetup.model.bundle import BundledSystem
from gpusetup_fleet.supply.kinds import kind_at

VERSION = "1.5"


def bill(components: Iterable[Mapping[str, Any]], about: Mapping[str, Any] | None = None, moment: str = "") -> bytes:
    """Return the bill of these components; `about`: the product they belong to, `moment`: when it was made."""
    listed = {item["bom-ref"]: item for item in components}
    made: dict[str, Any] = {"tools": [{"name": "gpusetup", "version": __version__}]}
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX", "specVersion": VERSION, "version": 1,
        "metadata": ({"timestamp": moment} if moment else {}) | made | ({"component": about} if about else {}),
        "components": [listed[reference] for reference in sorted(listed)],
    }  # fmt: skip
    if about:
        document["dependencies"] = [{"ref": about["bom-ref"], "dependsOn": sorted(listed)}]
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def component(name: str, version: str, purl: str, sha256: str = "", kind: str = "library") -> dict[str, Any]:
    """Return one component, with its digest where that is known."""
    found: dict[str, Any] = {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}
    if not version:  # chosen at installation
        del found["version"]
    if sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return found


def python_library(name: str, version: str, file: str = "", sha256: str = "") -> dict[str, Any]:
    """Return a Python library as a component; `file`: its wheel, where there is one."""
    purl = f"pkg:pypi/{name}" + (f"@{quote(version)}" if version else "")
    return component(name, version, purl + (f"?file_name={quote(file)}" if file else ""), sha256)


def bill_of(
    out: Path, systems: dict[str, BundledSystem], digests: dict[str, str], controller: Iterable[str] = ()
) -> bytes:
    """Return the bill of materials of everything in a bundle, including gpusetup's own wheels."""
    components: dict[str, dict[str, Any]] = {}
    for name, system in systems.items():
        family = re.match(r"[a-z]+", name)
        place = out / system.repository
        kind = kind_at(place)
        for entry in kind.repository.read(place):
            epoch, _colon, release = entry.version.rpartition(":") if kind.name == "rpm" else ("", "", entry.version)
            purl = f"pkg:{kind.name}/{family[0] if family else name}/{quote(entry.name)}@{quote(release)}"
            purl += f"?arch={entry.arch}" + (f"&epoch={epoch}" if epoch else "")
            components[purl] = component(entry.name, entry.version, purl, entry.file.sha256)
    for wheel in (*(name for system in systems.values() for name in system.wheels), *controller):
        project, version, _build, _tags = parse_wheel_filename(wheel.rpartition("/")[2])
        item = python_library(str(project), str(version), wheel.rpartition("/")[2], digests.get(wheel, ""))
        components[item["purl"]] = item
    return bill(components.values())
