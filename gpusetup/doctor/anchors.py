"""Find many texts in a long log in one pass.

Each text is represented by a short anchor inside it that begins with a letter which is rare in logs; one expression
looks for all anchors at once and skips everything else at the speed of memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Anchored", "Hit"]

LENGTH = 5
# Words that fill logs of GPU machines: an anchor inside them would be found on every line.
_EVERYWHERE = (
    " NCCL INFO NCCL WARN [ERROR] ERROR: WARNING: INFO: DEBUG: NVRM: NVIDIA CUDA cuda torch python3 site-packages "
    "/usr/lib/ x86_64 linux-gnu kernel: Traceback (most recent call last): File tensorflow/ /lib/python nvidia-smi "
    "RuntimeError: CUDA error: Error: Failed to initialize nvidia-container-cli: docker: Error response from daemon: "
    "cannot open shared object file: No such file or directory E: W: dkms packages version ImportError: Exception "
)
_COMMON = frozenset("etaoinsrlhdcu")


def _cost(letter: str) -> int:
    if letter.isupper():
        return 1
    if letter.islower():
        return 6 if letter in _COMMON else 3
    if letter.isdigit():
        return 5
    return {" ": 9, "_": 4, "/": 6, ":": 5, ".": 5, "-": 5, "=": 4}.get(letter, 2)


def _anchor(text: str, taken: set[str]) -> str:
    """Choose the cheapest anchor in a text; one that another text already has costs nothing more."""
    best, best_cost = "", 10**6
    for start in range(len(text) - LENGTH + 1):
        piece = text[start : start + LENGTH]
        cost = 12 * _cost(piece[0]) + sum(map(_cost, piece))
        if piece in _EVERYWHERE:
            cost += 200
        if piece in taken:
            cost -= 6
        if cost < best_cost:
            best, best_cost = piece, cost
    return best


class Hit(NamedTuple):
    """A text found: which one (its number) and where it begins."""

    number: int
    start: int


class Anchored:
    """The texts to look for, prepared."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        self._by_anchor: dict[str, list[tuple[int, int]]] = {}
        taken: set[str] = set()
        for index in sorted(range(len(self._texts)), key=lambda i: (len(self._texts[i]), self._texts[i])):
            text = self._texts[index]
            anchor = _anchor(text, taken)
            taken.add(anchor)
            self._by_anchor.setdefault(anchor, []).append((index, text.index(anchor)))
        self._search = re.compile(_alternation(taken)).search

    def hits(self, log: str) -> Iterator[Hit]:
        """Yield every occurrence, in the order of the log (occurrences may overlap)."""
        search, by_anchor, texts = self._search, self._by_anchor, self._texts
        found = search(log)
        while found is not None:
            at = found.start()
            for index, offset in by_anchor[found.group()]:
                start = at - offset
                if start >= 0 and log.startswith(texts[index], start):
                    yield Hit(index, start)
            found = search(log, at + 1)


def _alternation(anchors: set[str]) -> str:
    """Write the anchors as one expression that decides letter by letter."""
    by_first: dict[str, set[str]] = {}
    for anchor in anchors:
        by_first.setdefault(anchor[0], set()).add(anchor[1:])
    branches = []
    for first, rests in sorted(by_first.items()):
        inner = "" if rests == {""} else _alternation(rests)
        branches.append(re.escape(first) + (f"(?:{inner})" if "|" in inner else inner))
    return "|".join(branches)
