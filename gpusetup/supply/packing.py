"""A bundle as one file, or as parts that fit a medium: written and read as a stream, never twice on disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from gpusetup.bootstrap.bundle import MANIFEST, SIGNATURE, digest_of, read_manifest
from gpusetup.drive.runner import filtering
from gpusetup.errors import BadInputError, HostFailedError, PreflightError
from gpusetup.supply.fetching import enough_room
from gpusetup.supply.publishing import laid, put_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import Popen

    from gpusetup.model.bundle import BundledFile

__all__ = ["pack", "unpack", "zstd"]

_BLOCK = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_PART = "{}.{:03d}"
_UNTIL_WHOLE = ".manifest.json.new"
_LONGEST_SIGNATURE = 1 << 16


def pack(folder: Path, out: Path, split: int, tell: Callable[[int, int], None]) -> list[Path]:
    """Write the bundle to one file, or to `out.000` and so on; return what was written.

    The manifest comes first, so that reading can compare each file as it comes. Equal bundles make equal files.
    """
    manifest, _digest = read_manifest(folder / MANIFEST)
    heads = [name for name in (MANIFEST, SIGNATURE) if (folder / name).is_file()]
    sizes = {
        **{name: (folder / name).stat().st_size for name in heads},
        **{name: file.size for name, file in manifest.files.items()},
    }
    whole, done = sum(sizes.values()), 0
    enough_room(out.parent, whole)
    parts = _Parts(out, split)
    try:
        with (
            _compressed(parts, out) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in (*heads, *sorted(manifest.files)):
                _add(tar, folder / name, name, sizes[name], manifest.files.get(name))
                done += sizes[name]
                tell(done, whole)
        return parts.publish()
    except BaseException:
        parts.give_up()
        raise


def _add(tar: tarfile.TarFile, path: Path, name: str, size: int, file: BundledFile | None) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    try:
        if path.stat().st_size != size:
            raise BadInputError("GS-718", f"{name} does not match the manifest", path=str(path), hint="make it again")
        with path.open("rb") as stream:
            counted = _Counted(stream)
            tar.addfile(entry, cast("BinaryIO", counted))
    except FileNotFoundError as error:
        raise BadInputError(
            "GS-717", f"{name} is missing from the bundle", path=str(path), hint="make it again"
        ) from error
    if file is not None and counted.digest.hexdigest() != file.sha256:
        raise BadInputError("GS-718", f"{name} does not match the manifest", path=str(path), hint="make it again")


class _Counted(io.RawIOBase):
    """A stream whose digest is known at its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(size)
        self.digest.update(block)
        return block


class _Parts(io.RawIOBase):
    """What is written to it goes to one file, or to the next one whenever one is full."""

    def __init__(self, out: Path, split: int) -> None:
        self.out, self.split = out, split
        for left in out.parent.glob(f".{out.name}*.new"):
            left.unlink()
        self.written: list[Path] = []
        self.file: BinaryIO | None = None
        self.room = 0

    def write(self, block: bytes) -> int:  # type: ignore[override]
        rest = memoryview(block)
        while rest:
            if not self.room:
                self._next()
            assert self.file is not None  # noqa: S101 - _next opened it
            now = rest[: self.room]
            self.file.write(now)
            self.room -= len(now)
            rest = rest[len(now) :]
        return len(block)

    def _next(self) -> None:
        self.close_file()
        name = _PART.format(self.out.name, len(self.written)) if self.split else self.out.name
        part = self.out.with_name(f".{name}.new")
        self.file, self.room = part.open("wb"), self.split or 1 << 62
        self.written.append(part)

    def close_file(self) -> None:
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.file = None

    def publish(self) -> list[Path]:
        """Give the parts their names; parts of a former, longer one go."""
        self.close_file()
        for old in (self.out, *_numbered(self.out)):
            old.unlink(missing_ok=True)
        return [part.rename(part.with_name(part.name[1 : -len(".new")])) for part in self.written]

    def give_up(self) -> None:
        if self.file is not None:
            self.file.close()
        for part in self.written:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _compressed(parts: _Parts, out: Path) -> Iterator[BinaryIO]:
    """Give where to write to; `.zst` goes through zstd. Packages and wheels are packed already: little is gained."""
    if out.suffix != ".zst":
        yield cast("BinaryIO", parts)
        return
    from threading import Thread

    problems: list[BaseException] = []

    def copied() -> None:
        try:
            while block := output.read(_BLOCK):
                parts.write(block)
        except OSError as error:
            problems.append(error)
            process.kill()

    process = filtering([zstd(), "-q", "-3", "-T0", "-c"])
    output = cast("BinaryIO", process.stdout)
    reader = Thread(target=copied, daemon=True)
    reader.start()
    try:
        with contextlib.suppress(BrokenPipeError), cast("BinaryIO", process.stdin) as stream:
            yield stream
    except BaseException:
        process.kill()
        raise
    finally:
        reader.join()
        process.wait()
        output.close()
    if problems:
        raise problems[0]
    if process.returncode:
        raise HostFailedError(
            "GS-790", f"zstd ended with {process.returncode}", hint="repeat the command, or name the file .tar"
        )


def zstd() -> str:
    """Return the program, or say how to get it."""
    program = shutil.which("zstd")
    if program is None:
        raise PreflightError(
            "GS-790", "the program zstd is not here", hint="apt-get install zstd; or name the file .tar"
        )
    return program


def unpack(first: Path, out: Path, tell: Callable[[int, int], None]) -> int:
    """Write what is packed into a folder, each file compared with the manifest as it comes; return how many came.

    A beginning is gone on with, its manifest comes into force last. A bundle that is there is in use: the new one is
    made beside it, with the files that both have, and takes its place in one step.
    """
    parts = _parts_of(first)
    if not (out / MANIFEST).is_file():
        return _unpacked(first, parts, out, {}, tell)
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
    came = _unpacked(first, parts, coming, there, tell)
    put_in_place(coming, out)
    return came


def _unpacked(
    first: Path, parts: list[Path], out: Path, there: dict[str, Path], tell: Callable[[int, int], None]
) -> int:
    if out.exists() and any(out.iterdir()) and not any((out / name).is_file() for name in (MANIFEST, _UNTIL_WHOLE)):
        raise BadInputError(
            "GS-713", f"{out} contains other files", path=str(out), hint="give an empty folder with --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    signature = b""
    came = done = 0
    try:
        with _plain(parts) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            entry = tar.next()
            if entry is None or entry.name != MANIFEST:
                raise _not_ours(first, "it does not begin with a manifest")
            (out / _UNTIL_WHOLE).write_bytes(_content(tar, entry).read())
            manifest, _digest = read_manifest(out / _UNTIL_WHOLE)
            whole = sum(file.size for file in manifest.files.values())
            while (entry := tar.next()) is not None:
                if entry.name == SIGNATURE and entry.size <= _LONGEST_SIGNATURE and not seen:
                    signature = _content(tar, entry).read()
                    continue
                file = manifest.files.get(entry.name)
                if file is None or not entry.isreg() or entry.size != file.size or not _inside(entry.name):
                    raise _not_ours(first, f"{entry.name} is not in its manifest")
                came += _written(_content(tar, entry), out / entry.name, file.sha256, there.get(file.sha256))
                seen.add(entry.name)
                done += file.size
                tell(done, whole)
    except (tarfile.TarError, EOFError) as error:
        raise _not_ours(first, " ".join(str(error).split())) from error
    if missing := manifest.files.keys() - seen:
        raise _not_ours(first, f"it ends before {min(missing)}")
    if signature:
        (out / SIGNATURE).write_bytes(signature)
        seen.add(SIGNATURE)
    (out / _UNTIL_WHOLE).replace(out / MANIFEST)
    _drop_others(out, seen)
    return came


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> BinaryIO:
    content = tar.extractfile(entry)
    if content is None:
        raise tarfile.TarError(f"{entry.name} is no plain file")
    return cast("BinaryIO", content)


def _written(content: BinaryIO, path: Path, sha256: str, older: Path | None = None) -> int:
    """Put a file in place if neither this bundle nor an older one has it as it should be; return whether it was."""
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
            raise BadInputError(
                "GS-718", f"{path.name} does not match the manifest", path=str(path), hint="carry it over again"
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return 1


def _drop_others(out: Path, names: set[str]) -> None:
    """Files of an older bundle that this one does not name would be served by nobody."""
    for path in out.rglob("*"):
        name = path.relative_to(out).as_posix()
        if path.is_file() and name != MANIFEST and name not in names:
            path.unlink()


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and not path.name.startswith(".")


def _numbered(out: Path) -> list[Path]:
    return sorted(path for path in out.parent.glob(f"{out.name}.[0-9][0-9][0-9]"))


def _parts_of(first: Path) -> list[Path]:
    """Return the file, or all parts of which one was named."""
    out = first.with_suffix("") if first.suffix[1:].isdigit() and len(first.suffix) == len(".000") else first
    if out == first and first.is_file():
        return [first]
    parts = _numbered(out)
    for number, part in enumerate(parts):
        if part.name != _PART.format(out.name, number):
            raise BadInputError(
                "GS-788", f"{_PART.format(out.name, number)} is missing", path=str(first), hint="carry every part over"
            )
    if not parts:
        raise BadInputError(
            "GS-788", f"there is no {first}", path=str(first), hint="name the packed bundle, or its part .000"
        )
    return parts


@contextlib.contextmanager
def _plain(parts: list[Path]) -> Iterator[BinaryIO]:
    """Give the tar's bytes, one part after the other, unpacked by zstd where they begin as its own do."""
    with parts[0].open("rb") as beginning:
        small = beginning.read(len(_ZSTD)) == _ZSTD
    if not small:
        with _Joined(parts) as joined:
            yield cast("BinaryIO", joined)
        return
    from threading import Thread

    process = filtering([zstd(), "-q", "-d", "-c"])
    feed = Thread(target=_fed, args=(parts, process), daemon=True)
    feed.start()
    try:
        yield cast("BinaryIO", process.stdout)
    finally:
        process.kill()
        process.wait()
        feed.join()
        cast("BinaryIO", process.stdout).close()


def _fed(parts: list[Path], process: Popen[bytes]) -> None:
    """Who reads no more has its reason, and tells it."""
    with contextlib.suppress(BrokenPipeError, ValueError), cast("BinaryIO", process.stdin) as stream:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, stream, _BLOCK)


class _Joined(io.RawIOBase):
    """Parts as one stream."""

    def __init__(self, parts: list[Path]) -> None:
        self.left = [part.open("rb") for part in parts]

    def read(self, size: int = -1) -> bytes:
        while self.left:
            if block := self.left[0].read(size):
                return block
            self.left.pop(0).close()
        return b""

    def close(self) -> None:
        for file in self.left:
            file.close()
        super().close()


def _not_ours(first: Path, why: str) -> BadInputError:
    return BadInputError(
        "GS-789", f"{first.name} is not a whole packed bundle: {why}", path=str(first),
        hint="carry every part over again; made by: gpusetup bundle pack DIR --out FILE",
    )  # fmt: skip
