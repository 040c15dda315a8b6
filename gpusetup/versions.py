"""NVIDIA version text and its ordering: 550.144.03 stays 550.144.03, and 12.10 comes after 12.9."""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering

__all__ = ["NvVersion", "cuda_minor", "nv", "prefix_of"]

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@total_ordering
class NvVersion:
    """A dotted NVIDIA version: compares by number, prints as it was published."""

    __slots__ = ("numbers", "text")

    def __init__(self, text: str) -> None:
        if not _NUMBERS.fullmatch(text):
            raise ValueError(f"not an NVIDIA version: {text!r}")
        self.text = text
        self.numbers = tuple(int(part) for part in text.split("."))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"NvVersion({self.text!r})"

    def _padded(self, length: int) -> tuple[int, ...]:
        return self.numbers + (0,) * (length - len(self.numbers))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NvVersion):
            return NotImplemented
        length = max(len(self.numbers), len(other.numbers))
        return self._padded(length) == other._padded(length)

    def __lt__(self, other: NvVersion) -> bool:
        length = max(len(self.numbers), len(other.numbers))
        return self._padded(length) < other._padded(length)

    def __hash__(self) -> int:
        numbers = self.numbers
        while numbers and numbers[-1] == 0:
            numbers = numbers[:-1]
        return hash(numbers)

    @property
    def major(self) -> int:
        """The first number: a driver's branch, a toolkit's major."""
        return self.numbers[0]

    @property
    def minor(self) -> tuple[int, int]:
        """The first two numbers."""
        return (self.numbers[0], self.numbers[1] if len(self.numbers) > 1 else 0)


@lru_cache(maxsize=4096)
def nv(text: str) -> NvVersion:
    """Return the version for this text; raises ValueError when it is none."""
    return NvVersion(text)


def cuda_minor(text: str) -> str:
    """Return `12.4` for `12.4.1`: the part of a CUDA version that names its family of builds."""
    return ".".join(text.split(".")[:2])


def prefix_of(version: str, prefix: str) -> bool:
    """Tell whether `prefix` names `version` by whole numbers: 550.144 names 550.144.03, 550.14 does not."""
    numbers, wanted = nv(version).numbers, nv(prefix).numbers
    return numbers[: len(wanted)] == wanted
