"""Whether a pattern fits the place where one of its texts was found."""

from __future__ import annotations

import importlib
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gpusetup.doctor.unwrap import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.diagnosis import Pattern

__all__ = ["Expression", "Place"]

_FAR = 1200
"""A message reaches no further than this from its own line, however long the lines around are."""
_ANY_NUMBER = re.compile(r"\\d|\{[\d,]+\}|0-9|\(\?P<\w+>")
_XID = re.compile(r"\(\?P<s?xid>")

Needs: TypeAlias = "tuple[str | tuple[Needs, ...], ...]"
"""Words that must all be there; in the place of a word several lists, of which one must be there."""


class Place:
    """The line of a find, and the lines around it, all without the time at their beginning."""

    def __init__(self, own: str, before: Iterable[str], after: Iterable[str]) -> None:
        self.own = own
        self._around = (before, after)

    @cached_property
    def window(self) -> str:
        """The lines as they are."""
        before, after = map("\n".join, self._around)
        return "\n".join((before[-_FAR:], self.own, after[:_FAR]))

    @cached_property
    def joined(self) -> str:
        """The lines as one sentence: logs break messages and put prefixes before each part."""
        return one_line(self.window)

    @cached_property
    def own_joined(self) -> str:
        """The line alone without prefixes."""
        return one_line(self.own)


class Expression:
    """A pattern's expression: where it looks, and what its answer depends on.

    `own_line`: what it asks for (the number of an Xid, say) stands beside the find; the lines around prove nothing.
    `by_exact_lines`: certain digits in the lines around matter, so they must be looked at whenever they change; for
    all other expressions lines are alike that differ in their digits only.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._text = pattern.regex
        self.own_line = pattern.own_line or _XID.search(self._text) is not None
        certain = any(map(str.isdigit, _ANY_NUMBER.sub("", self._text)))
        self.by_exact_lines = certain and not self.own_line

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._text)

    @cached_property
    def _needs(self) -> Needs:
        return _needs(self._text)

    def possible(self, text: str) -> bool:
        """Tell whether it could match anywhere in a text."""
        # Escapes for colours may stand inside a word.
        return not self._text or "\x1b" in text or _there(self._needs, text)

    def fits(self, place: Place) -> dict[str, str] | None:
        """Return the named groups when the expression matches at this place, else None."""
        if not self._text:
            return {}
        scope = place.own if self.own_line else place.window
        if not self.possible(scope):
            return None
        search = self._compiled.search
        found = search(scope)
        if found is None:
            joined = place.own_joined if self.own_line else place.joined
            found = search(joined) if joined != scope else None
        return {name: value for name, value in found.groupdict().items() if value} if found else None


def _there(needs: Needs, text: str) -> bool:
    """Tell whether a text has the words without which an expression cannot match."""
    for need in needs:
        if isinstance(need, str):
            if need not in text:
                return False
        elif not any(_there(choice, text) for choice in need):
            return False
    return True


class _Node(NamedTuple):
    """A part of an expression as `re` reads it."""

    kind: str
    value: Any


def _needs(expression: str) -> Needs:
    try:
        parser = importlib.import_module("re._parser")
    except ImportError:  # before Python 3.11
        parser = importlib.import_module("sre_parse")
    parsed = parser.parse(expression)
    return () if parsed.state.flags & re.IGNORECASE else tuple(_walk(parsed))


def _walk(parsed: Iterable[tuple[object, Any]]) -> list[str | tuple[Needs, ...]]:
    """Collect the words between blanks that every match contains: a match may be broken at blanks only."""
    found: list[str | tuple[Needs, ...]] = []
    run = ""
    for node in (_Node(str(kind), value) for kind, value in parsed):
        if node.kind == "LITERAL":
            run += chr(node.value)
            continue
        found += [word for word in run.split() if len(word) > 1]
        run = ""
        if node.kind == "SUBPATTERN" and not node.value[1] & re.IGNORECASE:
            found += _walk(node.value[3])
        elif node.kind in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"} and node.value[0]:
            found += _walk(node.value[2])
        elif node.kind == "BRANCH":
            choices = tuple(tuple(_walk(choice)) for choice in node.value[1])
            if all(choices):
                found.append(choices)
    return found + [word for word in run.split() if len(word) > 1]
