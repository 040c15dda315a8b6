"""Find many texts in a long log at once.

A log is looked at in its words of eight (or four) bytes as they lie in memory, without regard to what they mean. A text
of at least fifteen (seven) bytes contains one such word whole wherever it stands, and which one depends only on its
place modulo eight (four): so a set of at most eight words per text tells which texts a piece of the log can contain.
Only those are then searched for. Nothing can be missed, and most pieces of most logs contain none of the words.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Literals"]

_PIECE = 16 * 1024
_WIDTHS = (("Q", 8), ("I", 4))


class _Words:
    """The memory words of one width by which texts are noticed."""

    def __init__(self, code: str, width: int, texts: dict[int, bytes]) -> None:
        self._code = code
        shared = Counter(gram for text in texts.values() for gram in set(_grams(text, width)))
        self._texts: dict[int, set[int]] = {}
        for number, text in texts.items():
            grams = _grams(text, width)
            for place in range(width):
                # Whichever word is in the fewest other texts says most.
                best = min(grams[place::width], key=shared.__getitem__)
                self._texts.setdefault(array(code, best)[0], set()).add(number)
        self._wanted = frozenset(self._texts)

    def noticed(self, piece: bytes) -> Iterator[int]:
        """Yield the texts that the piece may contain; its length is a multiple of eight."""
        for word in self._wanted.intersection(array(self._code, piece)):
            yield from self._texts[word]


def _grams(text: bytes, width: int) -> list[bytes]:
    return [text[start : start + width] for start in range(len(text) - width + 1)]


class Literals:
    """The texts to look for, prepared."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts
        self._overlap = (max(map(len, texts), default=0) // 8 + 1) * 8
        left = dict(enumerate(texts))
        self._words = []
        for code, width in _WIDTHS:
            long = {number: text for number, text in left.items() if len(text) >= 2 * width - 1}
            left = {number: text for number, text in left.items() if number not in long}
            self._words.append(_Words(code, width, long))
        self._short = tuple(left)

    def hits(self, log: bytes) -> list[tuple[int, int]]:
        """Return every occurrence as (where it begins, which text), in the order of the log; they may overlap."""
        found = []
        for begin in range(0, len(log), _PIECE):
            piece = log[begin : begin + _PIECE + self._overlap]
            for number in self._noticed(piece):
                text = self._texts[number]
                at = piece.find(text)
                while 0 <= at < _PIECE:
                    found.append((begin + at, number))
                    at = piece.find(text, at + 1)
        found.sort()
        return found

    def _noticed(self, piece: bytes) -> Iterable[int]:
        padded = piece if len(piece) % 8 == 0 else piece + bytes(8 - len(piece) % 8)
        noticed = set(self._short)
        for words in self._words:
            noticed.update(words.noticed(padded))
        return noticed
