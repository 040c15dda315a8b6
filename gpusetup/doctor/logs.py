"""Read a log in pieces (plain, gzip-compressed, or UTF-16 as Windows writes it)."""

import codecs
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gpusetup.doctor.other_trouble import TROUBLE, names_gpu
from gpusetup.doctor.patterns import SHAPE, plain
from gpusetup.doctor.references import mentioned

PIECE = 16 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_HEAD, _FIRST = 8192, 20
"""How many bytes and lines show that a file is a log."""
_TWO_BYTES = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Rejoined(io.RawIOBase):
    """A stream with an already read head put back."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if self._head:
            taken, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
            return taken
        return self._rest.read(size)


def read_pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the log as UTF-8; raise EOFError at the end of a truncated compressed log."""
    head = stream.read(PIECE)
    if head.startswith(_GZIP):
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=_Rejoined(head, stream)))
        head = _unpacked(stream)
    head = head.removeprefix(codecs.BOM_UTF8)
    encoding = _two_bytes(head)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    while head:
        yield decoder.decode(head).encode("utf-8", "replace") if decoder else head
        head = _unpacked(stream)


def _two_bytes(head: bytes) -> str | None:
    """Return the UTF-16 form of a log, detected by its byte order mark or (in a truncated log) by its zero bytes."""
    if head.startswith(_TWO_BYTES):
        return "utf-16"
    even, odd = head[:4096:2], head[1:4096:2]
    if odd.count(0) > 0.8 * len(odd) and even.count(0) < 0.2 * len(even):
        return "utf-16-le"
    if even.count(0) > 0.8 * len(even) and odd.count(0) < 0.2 * len(odd):
        return "utf-16-be"
    return None


def _unpacked(stream: BinaryIO) -> bytes:
    try:
        return stream.read(PIECE)
    except zlib.error as error:
        raise EOFError(f"damaged: {error}") from error


def is_log(path: Path) -> bool:
    """Return whether a file is packed or encoded as only logs are, or a log's prefixes begin one of its first lines."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    lines = head.decode("utf-8", "replace").splitlines()[:_FIRST]
    return head.startswith(_GZIP) or bool(_two_bytes(head)) or any(plain(line) not in ("", line) for line in lines)


class Log:
    """A text that is read once, with observations made while reading.

    `quiet`: it has no word of trouble. `known`: it has several lines and names NVIDIA's stack. `empty`: it is only
    white space. `binary`: it has zero bytes. `reference`: the first of gpusetup's error references in it.
    """

    _SHORT = 300
    """One line of at most this many bytes is a message rather than a log."""
    _WHOLE = 128 * 1024
    """How much of a log to keep: `nvidia-smi -q` of eight GPUs, and more."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.quiet = True
        self.empty = True
        self.binary = False
        self.lines = False
        self.reference = ""
        self._gpu = False
        self._pieces = pieces
        self._first: list[bytes] = []
        self._tail = b""
        self._kept = b""

    @property
    def known(self) -> bool:
        """Whether it is a log that names NVIDIA's stack."""
        return self.lines and self._gpu

    @property
    def text(self) -> str:
        """The whole log after reading it, if it is no longer than _WHOLE; else an empty string."""
        return self._kept.decode("utf-8", "replace") if len(self._kept) <= self._WHOLE else ""

    @property
    def end(self) -> str:
        """The end of the log after reading it: all of it, if it is no longer than _WHOLE."""
        return self._tail.decode("utf-8", "replace")

    def short(self) -> str:
        """Return the whole text if it is one short line, after inspecting it; else an empty string."""
        self._first = list(itertools.islice(self._pieces, 2))
        whole = b"".join(self._first).strip()
        if len(whole) > self._SHORT or b"\n" in whole:
            return ""
        for _piece in self.pieces():
            pass
        return whole.decode("utf-8", "replace")

    def pieces(self) -> Iterator[bytes]:
        """Yield the pieces and inspect them, including words split between two pieces."""
        for piece in itertools.chain(self._first, self._pieces):
            both = self._tail + piece
            if self.quiet:  # the subject matters only for a log that may be healthy
                shapes = set(both.translate(SHAPE).lower().split(b"\n"))
                self.quiet = not any(map(TROUBLE.search, shapes))
                lines = (shape.decode("utf-8", "replace") for shape in shapes if self.quiet)
                self._gpu = self._gpu or any(map(names_gpu, lines))
            if not self.lines:
                self.lines = b"\n" in (self._kept + piece).strip()
            self.empty = self.empty and not piece.strip()
            self.binary = self.binary or b"\0" in piece
            self.reference = self.reference or mentioned(both)
            self._tail = both[-self._WHOLE :]
            if len(self._kept) <= self._WHOLE:
                self._kept += piece[: self._WHOLE + 1]
            yield piece
