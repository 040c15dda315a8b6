"""A flat, signed apt repository of files that are in a pool: whole beside the one that is in use, then in its place."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.supply.fetching import Pool, Wanted
    from gpusetup.supply.signing import Signer

__all__ = ["file_name", "publish"]

_EPOCH = re.compile(r"_\d+:")
_PLACE = re.compile(r"^Filename: .*$", re.MULTILINE)


def publish(place: Path, files: Iterable[Wanted], stanzas: dict[str, str], pool: Pool, signer: Signer) -> list[Path]:
    """Make the repository; return its files. Whoever reads sees the old one or the new one."""
    new, old = place.with_name(f".{place.name}.new"), place.with_name(f".{place.name}.old")
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    new.mkdir(parents=True)
    described = []
    for item in sorted(files):
        pool.lay(item.sha256, new / file_name(item))
        described.append(_PLACE.sub(f"Filename: ./{file_name(item)}", stanzas[item.sha256]))
    packages = ("\n\n".join(described) + "\n").encode()
    (new / "Packages").write_bytes(packages)
    (new / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
    (new / "Release").write_text(_release(new, ("Packages", "Packages.gz")))
    signer.clear(new / "Release", new / "InRelease")
    (new / f"{signer.fingerprint[-8:].lower()}.pub").write_bytes(signer.public())
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
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
