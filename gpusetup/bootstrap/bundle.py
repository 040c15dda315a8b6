"""Controller bundles: a folder of wheels for new machines, with a manifest that has the digest of every file."""

import ctypes
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpusetup.bootstrap.wheels import wheel_tags
from gpusetup.drive.rundir import alone, write_whole
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model import Reading, must_be, stamp
from gpusetup.model.bundle import SCHEMA, Manifest
from gpusetup.model.platforms import OsRelease

MANIFEST, SIGNATURE, KEY = "manifest.json", "manifest.json.asc", "bundle.pub"
"""Manifest, its signature and the signer's key; the last two exist only in bundles with packages."""
_ANEW = "make a bundle: gpusetup bundle --controller-only --out DIR"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LONGEST_MANIFEST = 1 << 26
"""In bytes, enough for some 400,000 files; no more is read."""
_LONGEST_NAME, _LONGEST_PATH = 240, 2048
"""In bytes; during a transfer a file's name is a little longer."""
_ANY_GLIBC = 99
"""Stands for an unknown glibc: any platform tag fits."""
BESIDE = ("3.12", "3.11")
"""Pythons that the first stage installs in addition to the distribution's own, if packaged."""


def alone_on(out: Path, act: str) -> AbstractContextManager[None]:
    """Lock a bundle or mirror, next to its folder, which is replaced or not there yet."""
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    taken = PreflightError("GS-785", f"another gpusetup {act} {out}")
    return alone(out.with_name(f".{out.name}.lock"), taken)


_LINGER = 10.0
"""Seconds for which the programs of a killed run may still write into what it left."""
_HERE, _SWAP = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2(2)."""


@contextmanager
def replaced(place: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `place` at the end; until then `place` is the old one, even after a kill."""
    new, old = place.with_name(f".{place.name}.new"), place.with_name(f".{place.name}.old")
    if old.is_dir() and not place.exists():
        old.rename(place)  # an earlier run was killed between two renames
    end = time.monotonic() + _LINGER
    for folder in (new, old):
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=time.monotonic() < end)
            time.sleep(0.01)
    new.mkdir(parents=True)
    try:
        yield new
        put_in_place(new, place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def put_in_place(new: Path, place: Path) -> None:
    """Move a folder, whose files reach the disk first, to `place`; it gets owner and mode of the one that was there."""
    old = place.with_name(f".{place.name}.old")
    on_disk(new)
    if place.exists():
        before = place.stat()
        with suppress(PermissionError):
            os.chown(new, before.st_uid, before.st_gid)
        new.chmod(stat.S_IMODE(before.st_mode))
    if not place.exists():
        new.rename(place)
    elif _swapped(new, place):
        shutil.rmtree(new, ignore_errors=True)
    else:
        place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)


def on_disk(folder: Path) -> None:
    """Wait until all files of a folder's file system are on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    ctypes.CDLL(None).syncfs(opened)
    os.close(opened)


def _swapped(one: Path, other: Path) -> bool:
    """Swap two folders in one step; return False if kernel or file system cannot."""
    try:
        swap = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0)


def numbered(manifest: Manifest, before: Manifest | None) -> Manifest:
    """Return the manifest with serial and time: those of the previous bundle if nothing else differs, else new ones."""
    if before is not None and before.serial:
        same = msgspec.structs.replace(manifest, serial=before.serial, made=before.made)
        if same == before:
            return same
    now = int(time.time())
    serial = max(now, before.serial + 1 if before is not None else 0)
    return msgspec.structs.replace(manifest, serial=serial, made=stamp(now))


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest atomically."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n")


def sets_for(system: OsRelease, arch: str) -> tuple[str, ...]:
    """Return the names of the wheel sets that a new machine could use, the best first."""
    rows = [system.packaged(version) for version in BESIDE]
    beside = [row.version for row in rows if row is not None and not row.prerelease]
    return tuple(f"{one}-{arch}" for one in dict.fromkeys((system.python, *beside)) if one in PYTHONS)


def unusable_wheels(manifest: Manifest, kind: str, glibc: str) -> list[str]:
    """Return the wheels of a set that its Python cannot install on a system with this glibc ("unknown": any)."""
    python, _, arch = kind.partition("-")
    usable = {*wheel_tags(python, arch, int(glibc.split(".")[1]) if glibc != "unknown" else _ANY_GLIBC)}
    found = []
    for name in manifest.sets[kind]:
        try:
            tags = parse_wheel_filename(name.rpartition("/")[2])[3]
        except InvalidWheelFilename:
            continue  # left to pip on the machine
        if not tags & usable:
            found.append(name.rpartition("/")[2])
    return found


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """Return a manifest and the digest of its file; raise if it is invalid or too long."""
    unusable, unread = ("GS-716", "the manifest cannot be used"), ("GS-715", "cannot read the manifest")
    with Reading(path, unusable, unread, hint=_ANEW):
        with path.open("rb") as file:
            raw = file.read(LONGEST_MANIFEST + 1)
        if len(raw) > LONGEST_MANIFEST:
            raise BadInputError(
                "GS-716", f"the manifest is longer than {LONGEST_MANIFEST >> 20} MiB", path=str(path), hint=_ANEW
            )
        document = msgspec.json.decode(raw)
        must_be(document, path, ("a bundle manifest", SCHEMA, "GS-714"), _ANEW)
        manifest = msgspec.convert(document, Manifest)
    if why := _wrong_name(manifest.files):
        raise BadInputError("GS-716", f"the manifest cannot be used: {why}", path=str(path), hint=_ANEW)
    return manifest, hashlib.sha256(raw).hexdigest()


def _wrong_name(names: Collection[str]) -> str:
    """Return why a name cannot be a file in a bundle's folder; "" if all can."""
    folders: set[str] = set()
    for name in names:
        parts = name.split("/")
        if (
            not name.isprintable()
            or name in (MANIFEST, SIGNATURE)
            or any(not part or part.startswith(".") for part in parts)
            or any(len(part.encode()) > _LONGEST_NAME for part in parts)
            or len(name.encode()) > _LONGEST_PATH
        ):
            return f"{name[:80]!r} cannot be the name of a file in it"
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((f"{name[:80]!r} is a file and a folder in it" for name in names if name in folders), "")


def check_bundle(folder: Path) -> Manifest:
    """Compare every file with the manifest; raise for the first that is missing or differs."""
    manifest, _ = read_manifest(folder / MANIFEST)
    for name, wanted in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise BadInputError("GS-717", f"{name} is missing from the bundle", path=str(path))
        if digest_of(path) != wanted.sha256:
            raise BadInputError("GS-718", f"{name} does not match the manifest", path=str(path))
    return manifest


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
