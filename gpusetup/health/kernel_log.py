"""Errors that were dealt with stay in the kernel log until the next boot: those before a moment are left out."""

from __future__ import annotations

from typing import Any

from gpusetup.recovery.since import clock_of


def newer_than(document: dict[str, Any], moment: float) -> dict[str, Any]:
    """Return the observations without the lines of the kernel log up to a moment; a line without a time stays."""
    quick = document.get("quick") or {}
    log = quick.get("kernel_log")
    if not moment or not isinstance(log, dict):
        return document
    lines = [line for line in log.get("lines") or () if (clock_of(line) or moment + 1) > moment]
    return {**document, "quick": {**quick, "kernel_log": {**log, "lines": lines}}}
