"""NVIDIA version text and its ordering: 550.144.03 stays 550.144.03, and 12.10 comes after 12.9."""

import re
from functools import lru_cache

_NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")
EXACT = re.compile(r"==([0-9]{1,9}(?:\.[0-9]{1,9})*)(\.\*)?")
"""What most ask for, `==2.6.0` or `==2.6.*`: judged here, since to import packaging's specifiers takes long."""


class NvVersion:
    """A dotted NVIDIA version: compares by number, prints as it was published."""

    __slots__ = ("_key", "numbers", "text")

    def __init__(self, text: str) -> None:
        if not _NUMBERS.fullmatch(text):
            raise ValueError(f"not an NVIDIA version: {text!r}")
        self.text = text
        self.numbers = tuple(int(part) for part in text.split("."))
        # Without trailing zeros, tuples order as versions do: 12.4 and 12.4.0 are equal, 12.4 < 12.4.1.
        key = self.numbers
        while key and key[-1] == 0:
            key = key[:-1]
        self._key = key

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"NvVersion({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NvVersion) and self._key == other._key

    def __lt__(self, other: "NvVersion") -> bool:
        return self._key < other._key

    def __le__(self, other: "NvVersion") -> bool:
        return self._key <= other._key

    def __gt__(self, other: "NvVersion") -> bool:
        return self._key > other._key

    def __ge__(self, other: "NvVersion") -> bool:
        return self._key >= other._key

    def __hash__(self) -> int:
        return hash(self._key)

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
    """Parse a version; raise ValueError if the text is none."""
    return NvVersion(text)


def named_exactly(specifier: str, version: str) -> bool | None:
    """Return whether a specifier names a version, by PEP 440; None if it is not `EXACT`, or the version not plain."""
    wanted = EXACT.fullmatch(specifier)
    if wanted is None or not _NUMBERS.fullmatch(version):
        return None
    series, numbers = nv(wanted[1]).numbers, nv(version).numbers
    numbers += (0,) * (len(series) - len(numbers))
    return numbers[: len(series)] == series if wanted[2] else nv(version) == nv(wanted[1])


def cuda_minor(text: str) -> str:
    """Return `12.4` for `12.4.1`: the part of a CUDA version that names its family of builds."""
    return ".".join(text.split(".")[:2])
