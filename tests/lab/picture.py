"""Pictures as rows of pixels: PNG as browsers write it, and X's own dump of a window."""

import struct
import zlib
from pathlib import Path
from typing import NamedTuple


class Picture(NamedTuple):
    width: int
    rows: tuple[bytes, ...]

    @property
    def colours(self) -> set[bytes]:
        return {row[at : at + 3] for row in self.rows for at in range(0, len(row), 3)}

    def at(self, x: int, y: int) -> tuple[int, int, int]:
        red, green, blue = self.rows[y][3 * x : 3 * x + 3]
        return red, green, blue

    def unlike(self, other: "Picture", tolerance: int = 24) -> float:
        """Which part of the pixels is another colour there."""
        assert (self.width, len(self.rows)) == (other.width, len(other.rows))
        count = 0
        for ours, theirs in zip(self.rows, other.rows, strict=True):
            if ours != theirs:
                far = [abs(one - two) > tolerance for one, two in zip(ours, theirs, strict=True)]
                count += sum(any(far[at : at + 3]) for at in range(0, len(far), 3))
        return count / (self.width * len(self.rows))


def of_png(file: Path) -> Picture:
    """A PNG of 8 bits a channel without an interlace."""
    raw, data, place = file.read_bytes(), b"", 8
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, _depth, kind = struct.unpack(">IIBB", raw[16:26])
    channels = {2: 3, 6: 4}[kind]
    while place < len(raw):
        (length,) = struct.unpack(">I", raw[place : place + 4])
        if raw[place + 4 : place + 8] == b"IDAT":
            data += raw[place + 8 : place + 8 + length]
        place += 12 + length
    packed, stride, above = zlib.decompress(data), width * channels, bytes(width * channels)
    rows = []
    for number in range(height):
        begin = number * (stride + 1)
        filtering, row = packed[begin], bytearray(packed[begin + 1 : begin + 1 + stride])
        if filtering:
            for at in range(stride):
                left = row[at - channels] if at >= channels else 0
                corner = above[at - channels] if at >= channels else 0
                row[at] = (row[at] + _guess(filtering, left, above[at], corner)) & 255
        above = bytes(row)
        rows.append(above if channels == 3 else b"".join(above[at : at + 3] for at in range(0, stride, 4)))
    return Picture(width, tuple(rows))


def _guess(filtering: int, left: int, up: int, corner: int) -> int:
    if filtering == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda one: abs(guess - one))
    return {1: left, 2: up, 3: (left + up) // 2}[filtering]


def of_xwd(raw: bytes) -> Picture:
    """What `xwd` wrote of a window with three or four bytes a pixel, the least first."""
    head = struct.unpack(">25I", raw[:100])
    size, width, height, order, bits, line, colours = (head[at] for at in (0, 4, 5, 7, 11, 12, 19))
    assert order == 0
    step, begin = bits // 8, size + 12 * colours
    rows = []
    for number in range(height):
        row = raw[begin + number * line :][: step * width]
        rows.append(b"".join(row[at : at + 3][::-1] for at in range(0, len(row), step)))
    return Picture(width, tuple(rows))
