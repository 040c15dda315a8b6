"""What a bundle is made of, in CycloneDX's JSON: each package and wheel by its purl and digest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from gpusetup.supply.cyclonedx import bill, component, python_library
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
            components[purl] = component(entry.name, entry.version, purl, entry.file.sha256)
    for wheel in (*(name for system in systems.values() for name in system.wheels), *controller):
        project, version, _build, _tags = parse_wheel_filename(wheel.rpartition("/")[2])
        item = python_library(str(project), str(version), wheel.rpartition("/")[2], digests.get(wheel, ""))
        components[item["purl"]] = item
    return bill(components.values())
