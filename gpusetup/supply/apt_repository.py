"""A flat, signed apt repository of files that are in a pool."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from gpusetup.supply.entry import Beside, Entry, Need
from gpusetup.supply.fetching import Wanted
from gpusetup.supply.publishing import anew

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.supply.fetching import Pool
    from gpusetup.supply.signing import Signer

__all__ = ["entries_of", "file_name", "needs_of", "prove", "publish", "read"]

_EPOCH = re.compile(r"_\d+:")
_PLACE = re.compile(r"^Filename: .*$", re.MULTILINE)
_FIELD = re.compile(r"^([A-Za-z0-9-]+): (.*)$", re.MULTILINE)
_NEEDS = re.compile(r"([a-z0-9][a-z0-9.+-]*)(?::\w+)?\s*(?:\(([<>=]+)\s*([^)]+)\))?")
_NOTHING = Beside()
_PLAIN = "/+~:@"
"""What stands for itself in the path of an address."""


def read(place: Path) -> list[Entry]:
    """Return what a repository has; nothing where there is none."""
    index = place / "Packages"
    return entries_of(index.read_text(encoding="utf-8"), "") if index.is_file() else []


def entries_of(text: str, url: str) -> list[Entry]:
    """Read a Packages file."""
    found = []
    for stanza in text.strip().split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        if {"Package", "Version", "Filename", "Size", "SHA256"} <= set(fields):
            address = f"{url.rstrip('/')}/{quote(fields['Filename'].removeprefix('./').lstrip('/'), safe=_PLAIN)}"
            arch = fields.get("Architecture", "all")
            name = f"{fields['Package']}_{fields['Version']}_{arch}.deb"
            needs = needs_of(", ".join(filter(None, (fields.get("Pre-Depends"), fields.get("Depends")))))
            file = Wanted(address, name, int(fields["Size"]), fields["SHA256"])
            found.append(Entry(fields["Package"], fields["Version"], file, needs, arch=arch, stanza=stanza.strip("\n")))
    return found


def needs_of(text: str) -> tuple[Need, ...]:
    """Read a field of dependencies; of alternatives each is one."""
    return tuple(Need(name, sign, version.strip()) for name, sign, version in _NEEDS.findall(text))


def prove(_paths: Iterable[Path], _beside: Beside) -> None:
    """Nothing is left to do: apt proved the index, and the index has the digests."""


def publish(
    place: Path, entries: Iterable[Entry], pool: Pool, signer: Signer, _beside: Beside = _NOTHING
) -> list[Path]:
    """Make the repository; return its files."""
    with anew(place) as new:
        described = []
        for entry in sorted(entries, key=lambda entry: entry.file):
            name = file_name(entry.file)
            pool.lay(entry.file.sha256, new / name)
            described.append(_PLACE.sub(f"Filename: ./{name}", entry.stanza))
        packages = ("\n\n".join(described) + "\n").encode()
        (new / "Packages").write_bytes(packages)
        (new / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
        (new / "Release").write_text(_release(new, ("Packages", "Packages.gz")))
        signer.clear(new / "Release", new / "InRelease")
        (new / signer.key_file).write_bytes(signer.public())
    return sorted(place.iterdir())


def file_name(item: Wanted) -> str:
    """Return a package's file name, without an epoch as in every archive: not all servers take its colon."""
    return _EPOCH.sub("_", item.name, count=1)


def _release(folder: Path, names: tuple[str, ...]) -> str:
    lines = [
        "Origin: gpusetup",
        "Label: gpusetup bundle",
        f"Date: {dt.datetime.now(tz=dt.timezone.utc):%a, %d %b %Y %H:%M:%S +0000}",
        "SHA256:",
    ]
    for name in names:
        raw = (folder / name).read_bytes()
        lines.append(f" {hashlib.sha256(raw).hexdigest()} {len(raw)} {name}")
    return "\n".join(lines) + "\n"
