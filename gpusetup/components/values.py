"""How single values of settings are read, wherever they stand: what is not valid is said with what would be."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, get_args

from gpusetup.components.addresses import given, holds_login, without_login
from gpusetup.errors import BadInputError
from gpusetup.model.package import Key, Source
from gpusetup.model.platforms import Cloud

if TYPE_CHECKING:
    from collections.abc import Callable

_ADDRESS = re.compile(r"(https?|file)://[^\s'\"{}$`;|<>\\]+")
_PATH = re.compile(r"/[A-Za-z0-9_./+@:-]*")


def wrong(label: str, value: object, wanted: str) -> BadInputError:
    """Return why a value is not valid, and what would be."""
    return BadInputError("GS-313", f"{label} = {_short(value)} is not valid", path=label, hint=f"write {wanted}")


def _short(value: object) -> str:
    """Return a value as a message shows it, without a password."""
    value = without_login(value)
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "…"


def members(value: Any, first: str) -> dict[str, Any] | None:
    """Read {first: [...], ...}, or its first list alone as words or JSON; none where it says so.

    What is none of these raises ValueError.
    """
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        value = json.loads(value)
    if value in (False, None, "", "false", "no", "none", "off"):
        return None
    if isinstance(value, str):
        value = re.split(r"[,\s]+", value.strip())
    if isinstance(value, list | tuple):
        value = {first: value}
    if not isinstance(value, dict) or first not in value:
        raise ValueError(first)
    return value


def texts(value: Any, label: str) -> tuple[str, ...]:
    """Read a list: as JSON, or words between commas."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else re.split(r"[,\s]+", value.strip())
        except ValueError:
            raise wrong(label, value, 'a list: ["a", "b"]') from None
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise wrong(label, value, 'a list: ["a", "b"]')
    return tuple(item for item in value if item)


def choice(*allowed: str) -> Callable[[Any, str], str]:
    """Return what reads one of these words."""

    def read(value: Any, label: str) -> str:
        if value not in allowed:
            raise wrong(label, value, "one of: " + ", ".join(allowed))
        return str(value)

    return read


def yes(value: Any, label: str) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if str(value).lower() not in words:
        raise wrong(label, value, "true or false")
    return words[str(value).lower()]


def path(value: Any, label: str) -> str:
    """Read an absolute path."""
    if not isinstance(value, str) or not _PATH.fullmatch(value) or "/../" in f"{value}/":
        raise wrong(label, value, "an absolute path of letters, digits and . _ - + @ : /")
    return value


def source(value: Any, label: str) -> str:
    """Read where packages come from."""
    text = str(value)
    if holds_login(text):
        raise BadInputError(
            "GS-317",
            f"{label} has a password in its address: it would appear in plans and in files that everyone can read",
            path=label,
            hint="store the login on the host (/etc/apt/auth.conf.d, /etc/netrc) and remove it from the address",
        )
    file = text.endswith(".run") or (text.startswith("/") and text.endswith((".deb", ".rpm")))
    if file and given(text) is None:
        if "-vgpu-" in text:
            raise wrong(
                label, value, "the path of a guest driver (…-grid.run): this one is for the machine that lends vGPUs"
            )
        if "nvidia-linux-grid-" in text:
            raise wrong(label, value, "the path of the guest driver's .run file, which is beside this package")
        wanted = (
            "NVIDIA-Linux-….run (its path on the host, or its address), or the path on the host of "
            "nvidia-driver-local-repo-… or cuda-repo-…-local…"
        )
        raise wrong(label, value, f"{wanted} under the name that NVIDIA gave it")
    if text in {"nvidia", "distro", *get_args(Cloud)} or _ADDRESS.fullmatch(text) or _PATH.fullmatch(text):
        return text.rstrip("/") or text
    clouds = ", ".join(get_args(Cloud))
    raise wrong(label, value, f"nvidia, distro, a cloud ({clouds}), the URL of a mirror or the path of a bundle")


def place(value: Any, label: str) -> str:
    """Read a path on the host, or an address whose answers pip can prove: wheels are not signed."""
    text = str(value)
    proven = _PATH.fullmatch(text) or (_ADDRESS.fullmatch(text) and text.startswith("https://"))
    if holds_login(text) or not proven:
        raise wrong(label, value, "a path on the host, or an https address without a password")
    return text


def sha256(value: Any, label: str) -> str:
    """Read a digest."""
    text = str(value).strip().lower()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise wrong(label, value, "a SHA-256 digest: 64 hexadecimal digits")
    return text


def fingerprints(value: Any, label: str) -> tuple[str, ...]:
    """Read full fingerprints."""
    prints = tuple(text.replace(" ", "").upper() for text in texts(value, label))
    if not all(re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", text) for text in prints):
        raise wrong(label, value, "full fingerprints: 40 or 64 hexadecimal digits each")
    return prints


def extra_sources(value: Any, label: str) -> tuple[Source, ...]:
    """Read further repositories."""
    wanted = 'a list of {"name", "urls", "fingerprints", "key"}'
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise wrong(label, value, wanted) from None
    if not isinstance(value, list):
        raise wrong(label, value, wanted)
    sources = []
    for item in value:
        if not isinstance(item, dict) or set(item) != {"name", "urls", "fingerprints", "key"}:
            raise wrong(label, item, wanted)
        if not re.fullmatch(r"[A-Za-z0-9._-]+", str(item["name"])):
            raise wrong(label, item["name"], "a name of letters, digits and . _ -")
        prints, place = fingerprints(item["fingerprints"], label), source(item["key"], label)
        uris = tuple(source(url, label) for url in texts(item["urls"], label))
        sources.append(Source(name=str(item["name"]), uris=uris, key=Key.at(place, prints)))
    return tuple(sources)
