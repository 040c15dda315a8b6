"""Match a pattern's expression around a place where one of its texts was found, also across broken lines."""

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache

from gpusetup.model.diagnosis import Pattern

PREFIX = re.compile(
    r"""^(?:\s*(?:
        \x1b\[[0-9;]*m
      | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?:?\s   # 2025-07-01T05:06:30.004+00:00
      | [A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d:\d\d(?:\.\d+)?\s                   # Dec  2 11:49:53
      | \[\s*[+\d][\d.]*\]\s?                                                 # [  903.609564]
      | \[[A-Z][a-z]{2}\ [A-Z][a-z]{2}\s+\d+\ [\d:]+\ \d{4}\]\s?              # [Fri Aug 30 11:43:09 2024]
      | \(\w+\ pid=\d+[^)\n]{0,40}\)\s|\[rank\d+\]:\s|\[\s*[TC]\d+\]\s?|std(?:err|out)\ F\s|[\w.-]+[_-]\d+\s+\|\s
      | (?:[\w.-]+\s+)?(?:kernel|[\w./@-]+\[\d+\]):\s
      | kern(?:el)?:\s+(?:(?:err|warning|info|crit|alert|notice):\s+)?
      | \[\d{4}-\d\d-\d\dT[\d:.]+Z\]:\s
      | NVRM:\s
      | >\s
    )){1,8}""",
    re.VERBOSE,
)
_BLANKS = re.compile(r"[^\S ]|  ")


@lru_cache(maxsize=64)  # a line is also in the windows of its neighbours
def plain(line: str) -> str:
    """Return the line without the log's prefixes."""
    return PREFIX.sub("", line, count=1)


def one_line(lines: str) -> str:
    """Join several lines into one, without log prefixes."""
    if not _BLANKS.search(lines):
        return plain(lines).strip()
    return " ".join(" ".join(plain(line) for line in lines.splitlines()).split())


FAR = 1200
"""The lines around a find are cut to this many characters before and after its own line."""
FEW = 40
"""A text of at most this many lines is a message as people paste it: it is read more closely."""
SHAPE = bytes.maketrans(b"123456789", b"0" * 9)
"""Most lines of a log differ from others in digits only."""
_ANY_NUMBER = re.compile(r"\\d|\{[\d,]+\}|0-9|\(\?P<\w+>")
_XID = re.compile(r"\(\?P<s?xid>")

_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_REPEAT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")
_PART = re.compile(rf"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|{_REPEAT.pattern}|.", re.DOTALL)
"""One part of an expression: an escape, a class, a repeat, or one character."""


class Place:
    """The line of a find and the lines around it, all without their time stamps."""

    def __init__(self, own: str, before: Iterable[str], after: Iterable[str]) -> None:
        self.own = own
        self._around = (before, after)

    @cached_property
    def window(self) -> str:
        """The lines as they are, joined by line breaks."""
        before, after = map("\n".join, self._around)
        return "\n".join((before[-FAR:], self.own, after[:FAR]))

    @cached_property
    def joined(self) -> str:
        """The lines as one, since logs break messages and put prefixes before each part."""
        return one_line(self.window)

    @cached_property
    def own_joined(self) -> str:
        """The find's own line without prefixes."""
        return one_line(self.own)


class Expression:
    """A pattern's expression: where it is tried, and what its result depends on.

    `own_line`: it is tried on the find's own line only, where the value it captures (such as an Xid's number) is.
    `by_exact_lines`: it depends on certain digits in the lines around, so it is tried again whenever these change; for
    all other expressions, lines that differ only in digits are equivalent.
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
    def _needs(self) -> tuple[tuple[str, ...], ...]:
        return needed_words(self._text)

    def possible(self, text: str) -> bool:
        """Return whether it could match anywhere in a text."""
        return not self._needs or any(all(word in text for word in words) for words in self._needs)

    def fits(self, place: Place) -> dict[str, str] | None:
        """Return the named groups if the expression matches at this place, else None."""
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


def needed_words(expression: str) -> tuple[tuple[str, ...], ...]:
    """Return word lists such that every match contains all words of at least one list; empty if none can be derived.

    Only the text outside all groups counts. Words are cut at blanks, since a match may be broken there.
    """
    if _FLAGS.search(expression):
        return ()
    depth, choices = 0, [""]
    for part in _PART.findall(expression):
        if part in "()":
            depth += 1 if part == "(" else -1
            choices[-1] += " "
        elif depth:
            continue
        elif part == "|":
            choices.append("")
        elif _REPEAT.fullmatch(part):
            may_be_missing = part[0] in "*?" or part.startswith("{0")
            choices[-1] = (choices[-1][:-1] if may_be_missing else choices[-1]) + " "
        elif part[0] == "\\":
            choices[-1] += " " if part[1].isalnum() else part[1]
        else:
            choices[-1] += part if len(part) == 1 and part not in ".^$" else " "
    found = tuple(tuple(word for word in choice.split() if len(word) > 1) for choice in choices)
    return found if all(found) else ()
