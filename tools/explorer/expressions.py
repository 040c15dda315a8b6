"""Translate Python's regular expressions to JavaScript's (flag u), with the same matches.

Python's own parser reads the expression. What JavaScript does not support fails here, not in a browser.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_parser: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
WORD = r"\p{L}\p{N}_"
"""Python's \\w knows all alphabets, JavaScript's only English letters."""
BOUNDARY = rf"(?:(?<=[{WORD}])(?![{WORD}])|(?<![{WORD}])(?=[{WORD}]))"
_INSIDE = {"DIGIT": r"\p{Nd}", "NOT_DIGIT": r"\P{Nd}", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": WORD}
_PLACES = {
    "BEGINNING_STRING": r"(?<![\s\S])",
    "END_STRING": r"(?![\s\S])",
    "BOUNDARY": BOUNDARY,
    "NON_BOUNDARY": f"(?!{BOUNDARY})",
}
_ATOMS = frozenset(("LITERAL", "NOT_LITERAL", "ANY", "IN", "SUBPATTERN"))
"""What is repeated as it is, without a group around it."""
_SYNTAX = frozenset(r"^$\.*+?()[]{}|/")


def script(expression: str | re.Pattern[str], *, whole: bool = False) -> str:
    """Return the expression for JavaScript; `whole`: it must match the whole text."""
    compiled = re.compile(expression)
    names = {number: name for name, number in compiled.groupindex.items()}
    # What was compiled with flags has them in the parser's own state, whatever its text says.
    tree = _parser.parse(compiled.pattern, compiled.flags)
    written = _Writer(names).sequence(tree, compiled.flags)
    return f"(?<![\\s\\S])(?:{written})(?![\\s\\S])" if whole else written


class _Writer:
    def __init__(self, names: dict[int, str]) -> None:
        self._names = names

    def sequence(self, items: Iterable[Any], flags: int) -> str:
        return "".join(self._item(str(kind), told, flags) for kind, told in items)

    def _item(self, kind: str, told: Any, flags: int) -> str:
        if kind == "LITERAL":
            cases = _cases(told, flags)
            return _outside(told) if len(cases) == 1 else f"[{''.join(map(_inside, cases))}]"
        if kind == "NOT_LITERAL":
            return f"[^{''.join(map(_inside, _cases(told, flags)))}]"
        if kind == "ANY":
            return r"[\s\S]" if flags & re.DOTALL else r"[^\n]"
        if kind == "IN":
            return _class(told, flags)
        if kind == "BRANCH":
            return f"(?:{'|'.join(self.sequence(one, flags) for one in told[1])})"
        if kind == "SUBPATTERN":
            number, added, taken, items = told
            name = self._names.get(number)
            begin = "(?:" if number is None else "(" if name is None else f"(?<{name}>"
            return f"{begin}{self.sequence(items, (flags | added) & ~taken)})"
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, items = told
            lazy = "?" if kind == "MIN_REPEAT" else ""
            written = self.sequence(items, flags)
            repeated = written if len(items) == 1 and str(items[0][0]) in _ATOMS else f"(?:{written})"
            return f"{repeated}{_times(low, high)}{lazy}"
        if kind in ("ASSERT", "ASSERT_NOT"):
            behind, items = told
            sign = "=" if kind == "ASSERT" else "!"
            return f"(?{'<' if behind < 0 else ''}{sign}{self.sequence(items, flags)})"
        if kind == "AT":
            return _place(str(told).removeprefix("AT_"), flags)
        if kind == "GROUPREF":
            return rf"\k<{self._names[told]}>" if told in self._names else rf"\{told}"
        raise ValueError(f"{kind} is not written for browsers yet")


def _times(low: int, high: Any) -> str:
    without_end = high == _parser.MAXREPEAT
    if (low, without_end) in ((0, True), (1, True)):
        return "*+"[low]
    if (low, high) == (0, 1):
        return "?"
    return f"{{{low}{'' if low == high else ',' if without_end else f',{high}'}}}"


def _place(name: str, flags: int) -> str:
    if name == "BEGINNING":
        return r"(?<![^\n])" if flags & re.MULTILINE else _PLACES["BEGINNING_STRING"]
    if name == "END":
        return r"(?![^\n])" if flags & re.MULTILINE else rf"(?=\n?{_PLACES['END_STRING']})"
    return _PLACES[name]


def _class(items: list[Any], flags: int) -> str:
    negative = bool(items) and str(items[0][0]) == "NEGATE"
    parts = []
    for kind, told in items[negative:]:
        name = str(kind)
        if name == "LITERAL":
            parts += map(_inside, _cases(told, flags))
        elif name == "RANGE":
            parts += _ranges(*told, flags)
        elif str(told) == "CATEGORY_NOT_WORD":
            if len(items) > 1:
                raise ValueError(r"\W beside others in a class is not written for browsers")
            return f"[^{WORD}]"
        else:
            parts.append(_INSIDE[str(told).removeprefix("CATEGORY_")])
    return f"[{'^' if negative else ''}{''.join(parts)}]"


def _ranges(low: int, high: int, flags: int) -> list[str]:
    found = [f"{_inside(low)}-{_inside(high)}"]
    if flags & re.IGNORECASE:
        for first, last in ((65, 90), (97, 122)):
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                found.append(f"{_inside(begin ^ 32)}-{_inside(end ^ 32)}")
    return found


def _cases(letter: int, flags: int) -> list[int]:
    if not flags & re.IGNORECASE:
        return [letter]
    return sorted({letter, *(ord(one) for one in (chr(letter).lower(), chr(letter).upper()) if len(one) == 1)})


def _outside(letter: int) -> str:
    return f"\\{chr(letter)}" if chr(letter) in _SYNTAX else _plain(letter)


def _inside(letter: int) -> str:
    return f"\\{chr(letter)}" if chr(letter) in r"^-]\[" else _plain(letter)


def _plain(letter: int) -> str:
    return chr(letter) if 32 <= letter < 127 else f"\\u{{{letter:x}}}"
