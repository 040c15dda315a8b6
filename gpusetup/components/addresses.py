"""Addresses and files as people write them: what a source's file name says, and the logins that addresses hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_RUNFILE = re.compile(
    r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>\d{3}\.\d+(?:\.\d+)?)(?P<kind>-[a-z0-9-]+)?\.run"
)
_LOCAL = re.compile(
    r"(?P<stem>(?:cuda-repo|nvidia-driver-local-repo)-(?P<directory>[a-z]+\d+|wsl-ubuntu)-[\w.+-]+)\.(?P<form>deb|rpm)"
)


class Given(NamedTuple):
    """What a file's name says."""

    kind: Literal["runfile", "deb", "rpm"]
    path: str
    """Where it is on the host, or the address of a `.run` installer."""
    stem: str = ""
    """A local repository's name, without its ending."""
    directory: str = ""
    """The distribution that it is for, as NVIDIA's repositories call it."""
    version: str = ""
    """The driver's, of a `.run` installer."""
    arch: str = ""
    guest: bool = False
    """Whether it is a vGPU guest's driver."""


def given(source: str) -> Given | None:
    """Return what a source is when it is a file; None for all other sources, and for a file of no such name."""
    name = source.rpartition("/")[2]
    fetched = source.startswith(("https://", "http://"))
    if not (source.startswith("/") or fetched):
        return None
    if match := _RUNFILE.fullmatch(name):
        kind_of = match["kind"] or ""
        if kind_of.startswith("-vgpu"):
            return None  # the software of the machine that lends vGPUs, which no guest can use
        guest = kind_of.startswith("-grid")
        return Given("runfile", source, version=match["version"], arch=match["arch"], guest=guest)
    if not fetched and (match := _LOCAL.fullmatch(name)):
        kind: Literal["deb", "rpm"] = "deb" if match["form"] == "deb" else "rpm"
        return Given(kind, source, stem=match["stem"], directory=match["directory"])
    return None


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
