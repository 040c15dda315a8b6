"""A bill of materials in CycloneDX's JSON: of a bundle, and of gpusetup's own packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from gpusetup import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["VERSION", "bill", "component", "python_library"]

VERSION = "1.5"


def bill(components: Iterable[Mapping[str, Any]], about: Mapping[str, Any] | None = None, moment: str = "") -> bytes:
    """Return the bill of these components; `about` is what they are the parts of, `moment` when that was made."""
    listed = {item["bom-ref"]: item for item in components}
    made: dict[str, Any] = {"tools": [{"name": "gpusetup", "version": __version__}]}
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "version": 1,
        "metadata": ({"timestamp": moment} if moment else {}) | made | ({"component": about} if about else {}),
        "components": [listed[reference] for reference in sorted(listed)],
    }
    if about:
        document["dependencies"] = [{"ref": about["bom-ref"], "dependsOn": sorted(listed)}]
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def component(name: str, version: str, purl: str, sha256: str = "", kind: str = "library") -> dict[str, Any]:
    """Return one part: by its purl, with its digest where that is known."""
    found: dict[str, Any] = {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}
    if not version:  # whoever installs it chooses
        del found["version"]
    if sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return found


def python_library(name: str, version: str, file: str = "", sha256: str = "") -> dict[str, Any]:
    """Return a library of the Python index, as the file that it came in where there is one."""
    purl = f"pkg:pypi/{name}" + (f"@{quote(version)}" if version else "")
    return component(name, version, purl + (f"?file_name={quote(file)}" if file else ""), sha256)
