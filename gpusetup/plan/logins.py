"""Logins in addresses: where they stand, and how addresses are told without them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["holds_login", "secrets_in", "without_login", "without_logins", "without_secrets"]

_HIDDEN = "***@"
_SCHEME = re.compile(r"(?<=//)[^/\s\"'\\]*@")
_BARE = re.compile(r"(?<![^\s\"'=,(\[])[^\s/@:\"'\\=,(\[{]+:[^\s/@\"'\\]+@(?=[^\s/@]+:\d)")
"""`user:password@host:port`, as a proxy is often written."""
_WITH_LOGIN = re.compile(r"https?://(?:[^/]*@|(?!\[)[^/:]+:\d*[^\d/][^@]*@)")
_LOGIN = re.compile(r"^(\s*(?:[a-z0-9+]+://)?)(.*)@", re.IGNORECASE | re.DOTALL)
_SHORTEST = 4
"""What is shorter may be a part of any word."""


def holds_login(address: str) -> bool:
    """Tell whether a login stands in an address, one with a slash in its password too."""
    return bool(_WITH_LOGIN.match(address))


def without_login(value: Any, *, proxy: bool = False) -> Any:
    """Return what an address variable says, lists and mappings too, with stars where a login stood."""
    if isinstance(value, dict):
        return {key: without_login(item, proxy=proxy) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_login(item, proxy=proxy) for item in value]
    if not isinstance(value, str) or "@" not in value or value.startswith("/"):
        return value
    if proxy or holds_login(value) or ("//" not in value and ":" in value.partition("@")[0]):
        return _LOGIN.sub(rf"\1{_HIDDEN}", value)
    return without_logins(value)


def secrets_in(value: Any) -> Iterator[str]:
    """Yield what `without_login` leaves out of an address: the login as it stands there, and the password alone."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from secrets_in(item)
    if isinstance(value, str) and (match := _LOGIN.match(value)) and ":" in match.group(2):
        yield f"{match.group(2)}@"
        yield match.group(2).partition(":")[2]


def without_logins(text: str) -> str:
    """Return a text whose addresses hold no login."""
    return _BARE.sub(_HIDDEN, _SCHEME.sub(_HIDDEN, text)) if "@" in text else text


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, and without the login of any address."""
    for secret in sorted((secret for secret in secrets if len(secret) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN if secret.endswith("@") else "***")
    return without_logins(text)
