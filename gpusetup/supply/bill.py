"""What a bundle is made of, in CycloneDX's JSON: each package and wheel by its purl and digest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from packaging.utils import parse_wheel_filename

from gpusetup import __version__
from gpusetup.supply.kinds import kind_at

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.model.bundle import BundledSystem

__all__ = ["bill_of"]


def bill_of(
    out: Path, systems: dict[str, BundledSystem], digests: dict[str, str], controller: Iterable[str] = ()
) -> bytes:
    """Return the bill of materials of everything that hosts get, gpusetup's own wheels among it."""
    components: dict[str, dict[str, Any]] = {}
    for name, system in systems.items():
        family = re.match(r"[a-z]+", name)
        place = out / system.repository
        kind = kind_at(place)
        for entry in kind.repository.read(place):
            epoch, _colon, release = entry.version.rpartition(":") if kind.name == "rpm" else ("", "", entry.version)
            purl = f"pkg:{kind.name}/{family[0] if family else name}/{quote(entry.name)}@{quote(release)}"
            purl += f"?arch={entry.arch}" + (f"&epoch={epoch}" if epoch else "")
            components[purl] = _component(entry.name, entry.version, purl, entry.file.sha256)
    for wheel in (*(name for system in systems.values() for name in system.wheels), *controller):
        project, version, _build, _tags = parse_wheel_filename(wheel.rpartition("/")[2])
        purl = f"pkg:pypi/{project}@{quote(str(version))}?file_name={quote(wheel.rpartition('/')[2])}"
        components[purl] = _component(str(project), str(version), purl, digests.get(wheel, ""))
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"tools": [{"name": "gpusetup", "version": __version__}]},
        "components": [components[purl] for purl in sorted(components)],
    }
    return msgspec.json.format(msgspec.json.encode(bill), indent=1) + b"\n"


def _component(name: str, version: str, purl: str, sha256: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
    if sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return found
