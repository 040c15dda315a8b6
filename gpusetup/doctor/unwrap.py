"""Logs break sentences over lines and put prefixes before them; this puts the sentence together again."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["ESCAPES", "PREFIX", "one_line", "plain"]

PREFIX = re.compile(
    r"""^\s*(?:
        \x1b\[[0-9;]*m
      | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?:?\s   # 2025-07-01T05:06:30.004+00:00
      | [A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d:\d\d(?:\.\d+)?\s                   # Dec  2 11:49:53
      | \[\s*[+\d][\d.]*\]\s?                                                 # [  903.609564]
      | \[[A-Z][a-z]{2}\ [A-Z][a-z]{2}\s+\d+\ [\d:]+\ \d{4}\]\s?              # [Fri Aug 30 11:43:09 2024]
      | \(\w+\ pid=\d+\)\s
      | [\w.-]+\s+kernel:\s
      | kern(?:el)?:\s+(?:(?:err|warning|info|crit|alert|notice):\s+)?
      | \[\d{4}-\d\d-\d\dT[\d:.]+Z\]:\s
      | NVRM:\s
      | >\s
    )""",
    re.VERBOSE,
)
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BLANKS = re.compile(r"[^\S ]|  ")


@lru_cache(maxsize=64)  # a line stands in the windows of its neighbours too
def plain(line: str) -> str:
    """Return the line without what the log put before it."""
    for _ in range(8):
        shorter = PREFIX.sub("", line, count=1)
        if shorter == line:
            break
        line = shorter
    return line


def one_line(lines: str) -> str:
    """Return several lines as one sentence, without prefixes and line breaks."""
    text = ESCAPES.sub("", lines) if "\x1b" in lines else lines
    if not _BLANKS.search(text):
        return plain(text).strip()
    return " ".join(" ".join(plain(line) for line in text.splitlines()).split())
