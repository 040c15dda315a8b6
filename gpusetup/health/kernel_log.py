"""Errors that were dealt with stay in the kernel log until the next boot: those before a moment are left out."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

__all__ = ["newer_than"]

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d):?(\d\d)?")


def newer_than(document: dict[str, Any], moment: float) -> dict[str, Any]:
    """Return the observations without the lines of the kernel log up to a moment; a line without a time stays."""
    quick = document.get("quick") or {}
    log = quick.get("kernel_log")
    if not moment or not isinstance(log, dict):
        return document
    lines = [line for line in log.get("lines") or () if _time(line, moment + 1) > moment]
    return {**document, "quick": {**quick, "kernel_log": {**log, "lines": lines}}}


def _time(line: str, unknown: float) -> float:
    found = _STAMP.match(line)
    if found is None:
        return unknown
    zone = "+00:00" if found[2] == "Z" else f"{found[2]}:{found[3] or '00'}"
    return datetime.fromisoformat(found[1] + zone).timestamp()
