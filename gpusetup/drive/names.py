"""Host names and addresses that are safe in an argument list or a path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:@+-]{0,252}[A-Za-z0-9_])?")
_ADDRESS = re.compile(r"[A-Za-z0-9_:\[](?:[A-Za-z0-9_.:%@+\[\]-]{0,253})?")

_NUMBERED = re.compile(r"\A(.*?)(\d{0,15})(\D*)\Z", re.DOTALL)
_FOLDED = re.compile(r"([^,\[\]]+)(?:\[([\d,-]+)\]([^,\[\]]*))?(?:,|$)")


def check_host_name(name: str) -> str:
    """Return why this host name cannot be used, or an empty string."""
    if _NAME.fullmatch(name):
        return ""
    return "a host's name is letters, digits and . _ - + : @, at most 254, without spaces, slashes or quotes"


def check_address(address: str) -> str:
    """Return why this address cannot be used, or an empty string."""
    return "" if _ADDRESS.fullmatch(address) else "an address is letters, digits and . _ - : % [ ], no leading dash"


def folded(names: Iterable[str]) -> str:
    """Return names in short form: `gpu-[001-400],login1`; the reverse of `unfolded`."""
    runs: dict[tuple[str, int, str], list[int]] = {}
    for name in names:
        before, number, after = _NUMBERED.findall(name)[0]
        runs.setdefault((before, len(number), after), []).append(int(number or 0))
    words = []
    for (before, width, after), numbers in runs.items():
        if not width:
            words.append(before + after)
            continue
        spans: list[list[int]] = []
        for number in sorted(set(numbers)):
            if spans and spans[-1][1] == number - 1:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        told = [f"{low:0{width}}" + (f"-{high:0{width}}" if high > low else "") for low, high in spans]
        alone = len(told) == 1 and "-" not in told[0]
        words.append(f"{before}{told[0]}{after}" if alone else f"{before}[{','.join(told)}]{after}")
    return ",".join(words)


def unfolded(text: str) -> list[str]:
    """Return the names in a text of `folded`."""
    found = []
    for before, spans, after in _FOLDED.findall(text):
        for span in spans.split(","):
            low, _, high = span.partition("-")
            numbers = range(int(low), int(high or low) + 1) if spans else (0,)
            found += [f"{before}{number:0{len(low)}}{after}" if spans else before for number in numbers]
    return found
