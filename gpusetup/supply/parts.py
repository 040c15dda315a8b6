"""A packed bundle, one file or several parts, as one stream of bytes; `.zst` passes through zstd."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import shutil
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO, cast

from gpusetup.drive.runner import filtering
from gpusetup.errors import BadInputError, HostFailedError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import Popen

_BLOCK = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_PART = "{}.{:03d}"


class Parts(io.RawIOBase):
    """A stream that writes to one file, or to the next part whenever one is full."""

    def __init__(self, out: Path, split: int) -> None:
        self.out, self.split = out, split
        for left in (out.with_name(f".{out.name}.new"), *_numbered(out.with_name(f".{out.name}"), ".new")):
            left.unlink(missing_ok=True)
        self.written: list[Path] = []
        self.file: BinaryIO | None = None
        self.room = 0

    def write(self, block: bytes) -> int:  # type: ignore[override]
        """Write a block, across parts where necessary."""
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
        """Flush the last part to the disk and close it."""
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.file = None

    def publish(self) -> list[Path]:
        """Rename the parts to their final names; delete all parts of an earlier pack."""
        self.close_file()
        for old in (self.out, *_numbered(self.out)):
            old.unlink(missing_ok=True)
        return [part.rename(part.with_name(part.name[1 : -len(".new")])) for part in self.written]

    def give_up(self) -> None:
        """Delete the parts written so far."""
        if self.file is not None:
            with contextlib.suppress(OSError):  # on a full disk the rest cannot be written
                self.file.close()
        for part in self.written:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def compressed(parts: Parts, out: Path) -> Iterator[BinaryIO]:
    """Yield a stream that writes to `parts`, through zstd where `out` ends in .zst."""
    if out.suffix != ".zst":
        yield cast("BinaryIO", parts)
        return
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
    """Return the path of zstd; raise if it is not installed."""
    program = shutil.which("zstd")
    if program is None:
        raise PreflightError("GS-790", "the program zstd is not here")
    return program


def _numbered(out: Path, end: str = "") -> list[Path]:
    return sorted(out.parent.glob(f"{glob.escape(out.name)}.[0-9][0-9][0-9]{end}"))


def parts_of(first: Path) -> list[Path]:
    """Return the file, or all parts of the bundle that `first` is a part of."""
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
def plain(parts: list[Path]) -> Iterator[BinaryIO]:
    """Yield the tar stream of the parts, through zstd if they begin with its magic number."""
    with parts[0].open("rb") as beginning:
        small = beginning.read(len(_ZSTD)) == _ZSTD
    if not small:
        with _Joined(parts) as joined:
            yield cast("BinaryIO", joined)
        return
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
    with contextlib.suppress(BrokenPipeError, ValueError), cast("BinaryIO", process.stdin) as stream:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, stream, _BLOCK)


class _Joined(io.RawIOBase):
    """All parts as one stream."""

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
