"""The wheels of an environment for hosts that reach no index: what a lock with hashes names, on a page of links."""

from __future__ import annotations

import html
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from packaging.markers import Marker
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from gpusetup.bootstrap.wheels import target_environment
from gpusetup.errors import UnreachableError
from gpusetup.supply.fetching import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.bootstrap.hashes import Target
    from gpusetup.supply.fetching import Pool

__all__ = ["lay_links", "wheels_of"]

_OLDEST = 4


def wheels_of(pylock: str, target: Target) -> tuple[Wanted, ...]:
    """Return of each locked package the wheel that fits the target best."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    environment = target_environment(target.python, target.arch)
    order = {tag: number for number, tag in enumerate(_tags(target))}
    found = []
    for item in tomllib.loads(pylock)["packages"]:
        if "marker" in item and not Marker(item["marker"]).evaluate(environment):
            continue
        ranked = []
        for wheel in item.get("wheels", ()):
            name = unquote(wheel.get("name") or wheel["url"].rpartition("/")[2])
            tags = parse_wheel_filename(name)[3]
            rank = min((order[tag] for tag in tags if tag in order), default=None)
            if rank is not None:
                ranked.append((rank, name, wheel))
        if not ranked:
            raise UnreachableError("GS-768", f"{item['name']} has no wheel for {target}")
        _rank, name, wheel = min(ranked, key=lambda one: one[:2])
        found.append(
            Wanted(url=wheel["url"], name=name, size=int(wheel.get("size") or 0), sha256=wheel["hashes"]["sha256"])
        )
    return tuple(found)


def _tags(target: Target) -> list[object]:
    version = [int(part) for part in target.python.split(".")]
    abi = "cp" + target.python.replace(".", "")
    newest = int(target.glibc.partition(".")[2])
    platforms = []
    for minor in range(newest, _OLDEST, -1):
        platforms.append(f"manylinux_2_{minor}_{target.arch}")
        old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}.get(minor)
        platforms += [f"{old}_{target.arch}"] if old else []
    platforms.append(f"linux_{target.arch}")
    return [*cpython_tags(version, [abi, "abi3", "none"], platforms), *compatible_tags(version, abi, platforms)]


def lay_links(folder: Path, files: Iterable[Wanted], pool: Pool) -> None:
    """Put wheels beside those that are there, and all of them on a page that pip and uv read as links."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in files:
        if not (folder / item.name).is_file():
            pool.lay(item.sha256, folder / item.name)
    names = sorted(path.name for path in folder.glob("*.whl"))
    links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a><br>\n' for name in names)
    part = folder / ".index.html.new"
    part.write_text(f"<!DOCTYPE html>\n<title>wheels</title>\n{links}")
    part.replace(folder / "index.html")
