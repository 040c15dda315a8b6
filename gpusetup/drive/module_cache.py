"""What Ansible works out again in every process, kept from one process to the next.

Ansible reads and parses a hundred files to pack one module, which costs a quarter to half a second of a processor. The
result depends only on the collection and on Ansible, so the cache names both. It keeps modules of our collection alone:
others may come from a folder of the site. Where anything is unusual, nothing is kept or taken and Ansible packs as
ever. The other part is Ansible's table of plugins that moved: 376 KB of YAML, a fifth of the time of its start.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_CACHE = "ansiballz_cache"
"""Ansible's own cache folder, in the temporary folder of each process."""
_OURS = "ansible_collections.gpusetup.stack."
_KEPT, _DAY, _LARGE = 3, 86400.0, 100_000


def place_of(
    environment: Mapping[str, str], ansible: Path, version: str, overriding: Iterable[str] = ()
) -> Path | None:
    """Return the cache folder for this collection and this Ansible; None if there can be none.

    `ansible`: a file of the Ansible in use; `overriding`: folders whose code would override Ansible's own.
    """
    base = _cache_home(environment)
    collections = environment.get("ANSIBLE_COLLECTIONS_PATH", "").partition(":")[0]
    plugins = Path(collections, "ansible_collections/gpusetup/stack/plugins")
    if base is None or any(Path(folder).is_dir() for folder in overriding):
        return None
    try:
        files = [plugins / name for name in sorted(_python_below(plugins))]
        stamps = [(str(path), told.st_mtime_ns, told.st_size) for path in (ansible, *files) for told in [path.stat()]]
    except OSError:
        return None
    key = hashlib.sha256(repr((version, sys.version_info[:2], stamps)).encode()).hexdigest()
    return base / "packed" / key[:24] if files else None


def _cache_home(environment: Mapping[str, str]) -> Path | None:
    """Return the cache's parent: $GPUSETUP_CACHE, $XDG_CACHE_HOME/gpusetup or ~/.cache/gpusetup."""
    home = environment.get("HOME")
    places = (
        environment.get("GPUSETUP_CACHE"),
        f"{told}/gpusetup" if (told := environment.get("XDG_CACHE_HOME")) else None,
        f"{home}/.cache/gpusetup" if home else None,
    )
    place = next(filter(None, places), "")
    return Path(place) if place.startswith("/") else None


def _python_below(folder: Path) -> Iterable[str]:
    for place, _folders, names in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in names if name.endswith(".py"))  # noqa: PTH118 - a hundred of them


def take(place: Path, temporary: Path) -> None:
    """Link cached modules into Ansible's own cache folder."""
    if not _only_ours(place):
        return
    with suppress(OSError):
        cache = temporary / _CACHE
        cache.mkdir(mode=0o700, exist_ok=True)
        for path in place.iterdir():
            if path.name.startswith(_OURS) and not (cache / path.name).exists():
                (cache / path.name).symlink_to(path)
        os.utime(place)


def keep(place: Path, temporary: Path) -> None:
    """Copy newly packed modules into the cache, each atomically."""
    with suppress(OSError):
        new = [
            path
            for path in (temporary / _CACHE).iterdir()
            if path.name.startswith(_OURS) and not path.name.endswith((".lock", "-part")) and not path.is_symlink()
        ]
        if not new:
            return
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _only_ours(place):
            return
        for path in new:
            part = place / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, part)
            part.replace(place / path.name)
        _forget_old(place)


def reading_once(
    parse: Callable[[bytes | str, Any], dict[str, Any]], environment: Mapping[str, str]
) -> Callable[[bytes | str, Any], dict[str, Any]]:
    """Return `parse` of Ansible's metadata files, whose scalars all are strings, with an answer on disk for large ones.

    The digest of the text names its folder, so that a changed text is parsed again.
    """
    base = _cache_home(environment)

    def parsed(text: bytes | str, content_id: object) -> dict[str, Any]:
        if base is None or len(text) < _LARGE:
            return parse(text, content_id)
        digest = hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()
        place = base / "tables" / digest[:24]
        kept = place / "table.json"
        with suppress(OSError, ValueError):
            if _only_ours(place):
                return dict(json.loads(kept.read_bytes()))
        found = parse(text, content_id)
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = place / f".{os.getpid()}"
            part.write_text(json.dumps(found), encoding="utf-8")
            part.replace(kept)
            _forget_old(place)
        return found

    return parsed


def _only_ours(place: Path) -> bool:
    """Return whether nobody else can write to the cache: root runs its content on hosts."""
    try:
        return all(
            told.st_uid == os.geteuid() and not told.st_mode & 0o022
            for told in (path.stat() for path in (place.parent, place))
        )
    except OSError:
        return False


def _forget_old(place: Path) -> None:
    """Delete the folders of earlier versions, unless a run may still use them."""
    others = sorted(place.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]
    for other in others:
        if other.stat().st_mtime < time.time() - _DAY:
            shutil.rmtree(other, ignore_errors=True)
