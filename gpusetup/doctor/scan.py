"""Recognise messages in a text: one pass for the literal parts, expressions only around them."""

from __future__ import annotations

import gzip
import re
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from gpusetup.doctor.anchors import Anchored
from gpusetup.doctor.catalogue import catalogue
from gpusetup.doctor.unwrap import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Match", "read_chunks", "scan", "scan_chunks"]

CHUNK = 32 * 1024 * 1024
_LINES_AROUND = 4
_FAR = 1200
"""A window never reaches further than this from the find, however long the lines are."""
_DIGITS = str.maketrans("0123456789", "0" * 10)
_SHAPE = bytes.maketrans(b"123456789", b"0" * 9)
_KEY = 64
_KEYS = 20_000
"""The same text around the finds is judged once per shape; so many texts are remembered."""


class Match(NamedTuple):
    """A cause recognised at a place of the text."""

    cause: str
    line: int
    evidence: tuple[str, ...]
    groups: dict[str, str]
    times: int


class _Prepared:
    """The catalogue's patterns, ready for a scan; expressions are compiled when they are first needed."""

    def __init__(self) -> None:
        self.patterns = catalogue().patterns()
        finds = [(number, find) for number, (_, pattern) in enumerate(self.patterns) for find in pattern.find]
        self.owner = [number for number, _ in finds]
        self.finds = [find for _, find in finds]
        # Lines are looked at by their shape: the texts that are looked for must have lost their digits as well.
        shapes = (find.encode("utf-8").translate(_SHAPE).decode("latin-1") for _, find in finds)
        self.anchored = Anchored(shapes)

    @cache  # noqa: B019 - one instance lives as long as the program
    def expression(self, number: int) -> re.Pattern[str] | None:
        """Return the pattern's expression."""
        regex = self.patterns[number][1].regex
        return re.compile(regex) if regex else None


@cache
def _prepared() -> _Prepared:
    return _Prepared()


def _window(text: str, at: int) -> tuple[int, int]:
    """Return the lines around a place, as far as a message reaches."""
    start = at
    for _ in range(_LINES_AROUND):
        before = text.rfind("\n", max(0, at - _FAR), start)
        if before < 0:
            start = max(0, at - _FAR)
            break
        start = before
    end = at
    for _ in range(_LINES_AROUND + 1):
        after = text.find("\n", end + 1, at + _FAR)
        if after < 0:
            end = min(len(text), at + _FAR)
            break
        end = after
    return start, end


def _line_at(text: str, at: int) -> str:
    start = text.rfind("\n", max(0, at - _FAR), at) + 1
    end = text.find("\n", at, at + _FAR)
    return text[start or max(0, at - _FAR) : end if end >= 0 else at + _FAR]


def _evidence(line: str) -> tuple[str, ...]:
    line = line.strip()
    return (line if len(line) <= 400 else line[:400] + " …",)


class _Tally:
    """What a scan has found so far, over all chunks."""

    def __init__(self) -> None:
        self.found: dict[str, Match] = {}
        self.refused: set[tuple[int, str]] = set()

    def add(self, cause: str, line: int, evidence: tuple[str, ...], groups: dict[str, str]) -> None:
        old = self.found.get(cause)
        if old is None:
            self.found[cause] = Match(cause, line, evidence, groups, 1)
            return
        merged = {**groups, **old.groups}
        for name, value in groups.items():
            if value not in merged[name].split(", ") and merged[name].count(",") < 8:
                merged[name] += f", {value}"
        shown = old.evidence if evidence[0] in old.evidence or len(old.evidence) >= 3 else old.evidence + evidence
        self.found[cause] = old._replace(evidence=shown, groups=merged, times=old.times + 1)


def _confirm(tally: _Tally, number: int, text: str, at: int) -> dict[str, str] | None:
    """Return the named groups when the pattern matches around this place, else None."""
    expression = _prepared().expression(number)
    if expression is None:
        return {}
    shape = (number, _line_at(text, at).translate(_DIGITS))
    if shape in tally.refused:
        return None
    start, end = _window(text, at)
    window = text[start:end]
    found = expression.search(window) or expression.search(one_line(window))
    if found is None:
        if len(tally.refused) < 100_000:
            tally.refused.add(shape)
        return None
    return {name: value for name, value in found.groupdict().items() if value}


class _Shape:
    """What lines of one shape (equal but for their digits) may contain: patterns by their column."""

    __slots__ = ("places", "seen")

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self.places = places
        self.seen: dict[str, tuple[str, ...]] = {}


def _shapes(lines: list[bytes]) -> dict[bytes, _Shape]:
    """Return the shapes in which a find occurs; most lines of a log have one that was looked at before."""
    unique = list(dict.fromkeys(lines))
    text = b"\n".join(unique).decode("latin-1")
    starts = list(accumulate((len(line) + 1 for line in unique), initial=0))
    found: dict[bytes, _Shape] = {}
    index = 0
    for hit in _prepared().anchored.hits(text):
        while starts[index + 1] <= hit.start:
            index += 1
        shape = found.get(unique[index])
        if shape is None:
            shape = found[unique[index]] = _Shape([])
        shape.places.append((hit.number, hit.start - starts[index]))
    return found


def scan_chunks(chunks: Iterator[bytes]) -> list[Match]:
    """Recognise messages in a text that comes in pieces, each beginning at the start of a line."""
    tally, first_line = _Tally(), 1
    for raw in chunks:
        forms = raw.translate(_SHAPE).split(b"\n")
        shapes = _shapes(forms)
        if shapes:
            _look_closer(tally, raw.decode("utf-8", "replace"), forms, shapes, first_line)
        first_line += len(forms) - 1
    return list(tally.found.values())


def _look_closer(tally: _Tally, text: str, forms: list[bytes], shapes: dict[bytes, _Shape], first_line: int) -> None:
    """Confirm the patterns of the lines that have a telling shape."""
    prepared = _prepared()
    lines = text.split("\n")
    start = 0
    for offset, (form, line) in enumerate(zip(forms, lines, strict=True)):
        shape = shapes.get(form)
        if shape is not None:
            plain = len(line) == len(form)
            first, last = shape.places[0][1], shape.places[-1][1]
            key = line[first : last + _KEY] if plain else line
            causes = shape.seen.get(key)
            if causes is not None:
                for cause in causes:
                    tally.found[cause] = tally.found[cause]._replace(times=tally.found[cause].times + 1)
            else:
                judged = []
                for index, column in shape.places:
                    find = prepared.finds[index]
                    at = column if plain else line.find(find)
                    if at >= 0 and line.startswith(find, at):
                        judged.append(_judge(tally, prepared.owner[index], text, start + at, first_line + offset))
                if len(shape.seen) < _KEYS:
                    shape.seen[key] = tuple(name for name in judged if name)
        start += len(line) + 1


def _judge(tally: _Tally, number: int, text: str, at: int, line: int) -> str:
    """Return the pattern's cause when it is confirmed here, else an empty text."""
    cause = _prepared().patterns[number][0]
    groups = _confirm(tally, number, text, at)
    if groups is None:
        return ""
    tally.add(cause, line, _evidence(_line_at(text, at)), groups)
    return cause


def scan(text: str) -> list[Match]:
    """Recognise messages in a text."""
    return scan_chunks(iter([text.encode("utf-8", "replace")]))


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield a log in pieces that end at a line; a log compressed with gzip is unpacked on the way."""
    head = stream.read(CHUNK)
    if head[:2] == b"\x1f\x8b":
        from io import BufferedReader, BytesIO

        rest = BytesIO(head + stream.read())
        stream = BufferedReader(gzip.GzipFile(fileobj=rest))
        head = stream.read(CHUNK)
    carry = b""
    while head:
        block = carry + head
        head = stream.read(CHUNK)
        cut = len(block) if not head else block.rfind(b"\n") + 1 or len(block)
        yield block[:cut]
        carry = block[cut:]
