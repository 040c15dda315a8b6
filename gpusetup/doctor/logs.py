"""Read a log in pieces: plain, compressed with gzip, or with two bytes to a letter as Windows writes it."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_pieces"]

PIECE = 16 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_TWO_BYTES = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Rejoined(io.RawIOBase):
    """A stream of which the beginning was read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            taken, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
            return taken
        return self._rest.read(size)


def read_pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the log's bytes in UTF-8; a compressed log that is cut short raises EOFError at its end."""
    head = stream.read(PIECE)
    if head.startswith(_GZIP):
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=_Rejoined(head, stream)))
        head = _unpacked(stream)
    decoder = codecs.getincrementaldecoder("utf-16")("replace") if head.startswith(_TWO_BYTES) else None
    while head:
        yield decoder.decode(head).encode("utf-8", "replace") if decoder else head
        head = _unpacked(stream)


def _unpacked(stream: BinaryIO) -> bytes:
    try:
        return stream.read(PIECE)
    except zlib.error as error:
        raise EOFError(f"damaged: {error}") from error
