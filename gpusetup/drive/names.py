"""Host names and addresses that may go into an argument list or a path."""

from __future__ import annotations

import re

__all__ = ["check_address", "check_host_name"]

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:@+-]{0,252}[A-Za-z0-9_])?")
_ADDRESS = re.compile(r"[A-Za-z0-9_:\[](?:[A-Za-z0-9_.:%@+\[\]-]{0,253})?")


def check_host_name(name: str) -> str:
    """Return why this name cannot be used, or nothing."""
    if _NAME.fullmatch(name):
        return ""
    return "a host's name is letters, digits and . _ - + : @, at most 254, without spaces, slashes or quotes"


def check_address(address: str) -> str:
    """Return why this address cannot be used, or nothing."""
    return "" if _ADDRESS.fullmatch(address) else "an address is letters, digits and . _ - : % [ ], no leading dash"
