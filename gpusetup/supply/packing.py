"""A bundle as one file, or as parts that fit a medium; written and read as a stream, without a second copy on disk."""

import contextlib
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from gpusetup.bootstrap.bundle import (
    LONGEST_MANIFEST,
    MANIFEST,
    SIGNATURE,
    digest_of,
    on_disk,
    put_in_place,
    read_manifest,
)
from gpusetup.drive.rundir import alone, write_whole
from gpusetup.errors import BadInputError, PreflightError, wrong_field
from gpusetup.model import UNDECODED
from gpusetup.model.bundle import BundledFile, Manifest, Since
from gpusetup.supply.fetching import laid, require_space
from gpusetup.supply.parts import Parts, compressed, parts_of, plain
from gpusetup.supply.signing import Asked, before_in, examine_order, keep, prove

_BLOCK = 1 << 20
_UNTIL_WHOLE = ".manifest.json.new"
_LONGEST_SIGNATURE, _LONGEST_HEADER = 1 << 16, 1 << 20
_LONG_HEADERS = frozenset(
    (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
)
"""Types of tar headers that tarfile reads whole into memory."""
_MALFORMED = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""What tarfile raises for a damaged archive."""
_SINCE, _LONGEST_SINCE = ".since.json", 1 << 26
"""The entry of a differential archive that names the files left out; no file of a bundle can have this name."""


def pack(
    folder: Path, out: Path, split: int, tell: Callable[[int, int], None], since: Path | None = None
) -> list[Path]:
    """Write the bundle to one file, or to `out.000` and so on; return the files written.

    The manifest comes first, so that each file can be checked while it is read. Equal bundles make equal files.
    `since` is the manifest of an older bundle, whose files are left out.
    """
    manifest, _digest = read_manifest(folder / MANIFEST)
    heads = [name for name in (MANIFEST, SIGNATURE) if (folder / name).is_file()]
    base = _since(manifest, since) if since is not None else None
    packed = sorted(manifest.files.keys() - set(base.left_out if base is not None else ()))
    sizes = {
        **{name: (folder / name).stat().st_size for name in heads},
        **{name: manifest.files[name].size for name in packed},
    }
    whole, done = sum(sizes.values()), 0
    require_space(out.parent, whole)
    parts = Parts(out, split)
    try:
        with (
            compressed(parts, out) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in (*heads, *packed):
                if base is not None and name not in heads:
                    _add_text(tar, _SINCE, msgspec.json.encode(base))
                    base = None
                _add(tar, folder / name, name, sizes[name], manifest.files.get(name))
                done += sizes[name]
                tell(done, whole)
            if base is not None:  # only the manifest is new
                _add_text(tar, _SINCE, msgspec.json.encode(base))
        return parts.publish()
    except BaseException:
        parts.give_up()
        raise


def _since(manifest: Manifest, older: Path) -> Since:
    """Return which files an older bundle has already."""
    before, digest = read_manifest(older)
    there = {file.sha256 for file in before.files.values()}
    left_out = tuple(sorted(name for name, file in manifest.files.items() if file.sha256 in there))
    return Since(manifest_sha256=digest, left_out=left_out)


def _add_text(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def _add(tar: tarfile.TarFile, path: Path, name: str, size: int, file: BundledFile | None) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    try:
        if path.stat().st_size != size:
            raise BadInputError("GS-718", f"{name} does not match the manifest", path=str(path))
        with path.open("rb") as stream:
            counted = _Counted(stream)
            tar.addfile(entry, cast("BinaryIO", counted))
    except FileNotFoundError as error:
        raise BadInputError("GS-717", f"{name} is missing from the bundle", path=str(path)) from error
    if file is not None and counted.digest.hexdigest() != file.sha256:
        raise BadInputError("GS-718", f"{name} does not match the manifest", path=str(path))


class _Counted(io.RawIOBase):
    """A stream that computes the digest of what is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(size)
        self.digest.update(block)
        return block


class _Entry(tarfile.TarInfo):
    """A tar entry whose extended headers have a limited length."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _LONG_HEADERS and self.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]


def unpack(first: Path, out: Path, tell: Callable[[int, int], None], asked: Asked = Asked()) -> int:  # noqa: B008 - it is frozen
    """Unpack a bundle into a folder and check each file against the manifest; return how many files were new.

    The same command resumes an interrupted one; the manifest is put in place last. A bundle already in the folder stays
    in use: the new one is made next to it, with the files that both have, and the two are swapped in one step. Raises
    if the new bundle is older, or not signed by the same key.
    """
    parts, out = parts_of(first), out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, PreflightError("GS-785", f"another gpusetup unpacks into {out}")):
        return _renewed(first, parts, out, tell, asked)


def _renewed(first: Path, parts: list[Path], out: Path, tell: Callable[[int, int], None], asked: Asked) -> int:
    before = before_in(out)

    def accepted(manifest: Manifest, place: Path, *, signed: bool, whole: bool) -> None:
        examine_order(manifest, signed, before, asked, first)
        if whole:
            who.append(prove(place, place / _UNTIL_WHOLE, manifest, before, asked))

    who: list[str] = []
    if not (out / MANIFEST).is_file():
        came = _unpacked(first, parts, out, {}, tell, accepted=accepted)
        keep(out, read_manifest(out / MANIFEST)[0], *who)
        return came
    if os.path.ismount(out):
        raise BadInputError(
            "GS-713", f"{out} is where a disk is mounted; a new bundle could not take the place of the old one",
            path=str(out), hint=f"give another folder on it: --out {out}/site",
        )  # fmt: skip
    there = {file.sha256: out / name for name, file in read_manifest(out / MANIFEST)[0].files.items()}
    coming = out.with_name(f".{out.name}.coming")
    coming.mkdir(exist_ok=True)
    (coming / MANIFEST).unlink(missing_ok=True)
    (coming / _UNTIL_WHOLE).touch()
    came = _unpacked(first, parts, coming, there, tell, accepted=accepted)
    put_in_place(coming, out)
    keep(out, read_manifest(out / MANIFEST)[0], *who)
    return came


def _unpacked(
    first: Path,
    parts: list[Path],
    out: Path,
    there: dict[str, Path],
    tell: Callable[[int, int], None],
    *,
    accepted: Callable[..., None],
) -> int:
    if out.exists() and any(out.iterdir()) and not any((out / name).is_file() for name in (MANIFEST, _UNTIL_WHOLE)):
        raise BadInputError("GS-713", f"{out} contains other files", path=str(out))
    seen: set[str] = set()
    came = done = 0
    try:
        with plain(parts) as stream, tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as tar:
            raw, signature, entry = _heads(first, tar)
            (out / _UNTIL_WHOLE).touch()  # first of all files: a folder with others is refused
            write_whole(out / _UNTIL_WHOLE, raw)
            manifest = _manifest(first, out / _UNTIL_WHOLE)
            accepted(manifest, out, signed=bool(signature), whole=False)
            whole = sum(file.size for file in manifest.files.values())
            while entry is not None:
                if entry.name == _SINCE and entry.size <= _LONGEST_SINCE and not seen:
                    base = _base_of(first, _content(tar, entry).read(), manifest)
                    _from_base(first, base, manifest, there, out)
                    seen.update(base.left_out)
                    done += sum(manifest.files[name].size for name in base.left_out)
                    entry = tar.next()
                    continue
                file = manifest.files.get(entry.name)
                if file is None or not entry.isreg() or entry.issparse() or entry.size != file.size:
                    raise _not_ours(first, f"{entry.name[:80]} is not in its manifest")
                if entry.name in seen:
                    raise _not_ours(first, f"{entry.name} comes twice")
                came += _written(_content(tar, entry), out / entry.name, file.sha256, there.get(file.sha256))
                seen.add(entry.name)
                done += file.size
                tell(done, whole)
                entry = tar.next()
    except _MALFORMED as error:
        raise _not_ours(first, " ".join(str(error).split())) from error
    if missing := manifest.files.keys() - seen:
        raise _not_ours(first, f"it ends before {min(missing)}")
    (out / SIGNATURE).unlink(missing_ok=True)
    if signature:
        (out / SIGNATURE).write_bytes(signature)
        seen.add(SIGNATURE)
    accepted(manifest, out, signed=bool(signature), whole=True)
    on_disk(out)
    (out / _UNTIL_WHOLE).replace(out / MANIFEST)
    _drop_others(out, seen)
    return came


def _heads(first: Path, tar: tarfile.TarFile) -> tuple[bytes, bytes, tarfile.TarInfo | None]:
    """Return the manifest and its signature, of limited length, and the header of the first file."""
    entry = tar.next()
    if entry is None or entry.name != MANIFEST:
        raise _not_ours(first, "it does not begin with a manifest")
    if entry.size > LONGEST_MANIFEST:
        raise _not_ours(first, f"its manifest would have {entry.size} bytes")
    manifest, signature = _content(tar, entry).read(), b""
    entry = tar.next()
    if entry is not None and entry.name == SIGNATURE:
        if entry.size > _LONGEST_SIGNATURE:
            raise _not_ours(first, f"its signature would have {entry.size} bytes")
        signature, entry = _content(tar, entry).read(), tar.next()
    return manifest, signature, entry


def _manifest(first: Path, path: Path) -> Manifest:
    try:
        return read_manifest(path)[0]
    except BadInputError as error:
        raise _not_ours(first, error.message) from error


def _base_of(first: Path, raw: bytes, manifest: Manifest) -> Since:
    try:
        base = msgspec.json.decode(raw, type=Since)
    except UNDECODED as error:
        raise _not_ours(first, f"its description of the bundle before is not valid: {wrong_field(error)[0]}") from error
    if strange := [name for name in base.left_out if name not in manifest.files]:
        raise _not_ours(first, f"{strange[0]} is not in its manifest")
    return base


def _from_base(first: Path, base: Since, manifest: Manifest, there: dict[str, Path], out: Path) -> None:
    """Link the files that the archive leaves out from the existing bundle; raise if it lacks one."""
    kept = {name for name in base.left_out if (out / name).is_file()}  # from an interrupted try
    missing = [name for name in base.left_out if manifest.files[name].sha256 not in there and name not in kept]
    if missing:
        (out / _UNTIL_WHOLE).unlink()
        with contextlib.suppress(OSError):  # it has files of an interrupted try
            out.rmdir()
        raise BadInputError(
            "GS-794",
            f"{first.name} has only what is new since another bundle, which is not here",
            note=f"that bundle's manifest.json has the SHA-256 {base.manifest_sha256}; {len(missing)} files of it are "
            f"missing, {missing[0]} among them",
            path=str(first),
        )
    for name in base.left_out:
        path, sha256 = out / name, manifest.files[name].sha256
        if path.is_file() and digest_of(path) == sha256:
            continue
        older = there.get(sha256)
        if older is None or not older.is_file() or digest_of(older) != sha256:
            raise BadInputError(
                "GS-718", f"{name} of the bundle that is here does not match its manifest", path=str(older or path),
                hint="carry the whole bundle over: gpusetup bundle pack DIR --out FILE, without --since",
            )  # fmt: skip
        laid(older, path)


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> BinaryIO:
    content = tar.extractfile(entry)
    if content is None:
        raise tarfile.TarError(f"{entry.name} is no plain file")
    return cast("BinaryIO", content)


def _written(content: BinaryIO, path: Path, sha256: str, older: Path | None = None) -> int:
    """Write a file, unless it exists here or in the older bundle; return 1 if it was written, else 0."""
    if path.is_file() and digest_of(path) == sha256:
        return 0
    if older is not None and older.is_file() and digest_of(older) == sha256:
        laid(older, path)
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    part, digest = path.with_name(f".{path.name}.new"), hashlib.sha256()
    try:
        with part.open("wb") as stream:
            while block := content.read(_BLOCK):
                stream.write(block)
                digest.update(block)
        if digest.hexdigest() != sha256:
            raise BadInputError("GS-718", f"{path.name} does not match the manifest", path=str(path))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return 1


def _drop_others(out: Path, names: set[str]) -> None:
    """Delete files that the manifest does not name."""
    for path in out.rglob("*"):
        name = path.relative_to(out).as_posix()
        if path.is_file() and name != MANIFEST and name not in names:
            path.unlink()


def _not_ours(first: Path, why: str) -> BadInputError:
    return BadInputError("GS-789", f"{first.name} is not a whole packed bundle: {why}", path=str(first))
