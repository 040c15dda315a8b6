"""Parsers of single setting values and of source file names; and functions that hide passwords in texts."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from gpusetup.errors import BadInputError
from gpusetup.model.package import Key, Source
from gpusetup.model.platforms import Cloud

_RUNFILE = re.compile(
    r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>\d{3}\.\d+(?:\.\d+)?)(?P<kind>-[a-z0-9-]+)?\.run"
)
_LOCAL = re.compile(
    r"(?P<stem>(?:cuda-repo|nvidia-driver-local-repo)-(?P<directory>[a-z]+\d+|wsl-ubuntu)-[\w.+-]+)\.(?P<form>deb|rpm)"
)


class FileSource(NamedTuple):
    """What the name of an installer or repository package says."""

    kind: Literal["runfile", "deb", "rpm"]
    path: str
    """Its path on the host, or the URL of a `.run` installer."""
    stem: str = ""
    """The file name of a local repository without its extension."""
    directory: str = ""
    """The distribution it is for, by the name in NVIDIA's repositories."""
    version: str = ""
    """The driver version of a `.run` installer."""
    arch: str = ""
    guest: bool = False
    """Whether it is a vGPU guest's driver."""


def file_source(source: str) -> FileSource | None:
    """Return what a source's file name says; None if it is not a file with a name that NVIDIA gives."""
    name = source.rpartition("/")[2]
    fetched = source.startswith(("https://", "http://"))
    if not (source.startswith("/") or fetched):
        return None
    if match := _RUNFILE.fullmatch(name):
        kind_of = match["kind"] or ""
        if kind_of.startswith("-vgpu"):
            return None  # software for the vGPU host, which no guest can use
        guest = kind_of.startswith("-grid")
        return FileSource("runfile", source, version=match["version"], arch=match["arch"], guest=guest)
    if not fetched and (match := _LOCAL.fullmatch(name)):
        kind: Literal["deb", "rpm"] = "deb" if match["form"] == "deb" else "rpm"
        return FileSource(kind, source, stem=match["stem"], directory=match["directory"])
    return None


_HIDDEN = "***@"
_SCHEME = re.compile(r"(\w:/|//)[^/\s\"'\\]*@")
"""With one slash as well, as an address looks that was taken for a path."""
_TOKEN = re.compile(
    r"([?&;][\w.-]*(?:token|key|sig|signature|secret|pass|password|pwd|auth|credential)=)[^\s&;#\"'\\]+(?<![:,.)])",
    re.IGNORECASE,
)
_BARE = re.compile(r"(?<![^\s\"'=,(\[])[^\s/@:\"'\\=,(\[{]+:[^\s/@\"'\\]+@(?=[^\s/@]+:\d)")
"""`user:password@host:port`, as a proxy is often written."""
_WITH_LOGIN = re.compile(r"https?://(?:[^/]*@|(?!\[)[^/:]+:\d*[^\d/][^@]*@)")
_LOGIN = re.compile(r"^(\s*(?:[a-z0-9+]+://)?)(.*)@", re.IGNORECASE | re.DOTALL)
_SHORTEST = 4
"""Shorter secrets are not replaced: they may be part of any word."""


def holds_login(address: str) -> bool:
    """Return whether an address contains a login, even one with a slash in its password."""
    return bool(_WITH_LOGIN.match(address))


def without_login(value: Any, *, proxy: bool = False) -> Any:
    """Return an address, or a list or mapping of addresses, with each login replaced by stars."""
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
    """Yield each login that `without_login` hides, then its password alone."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from secrets_in(item)
    if isinstance(value, str) and (match := _LOGIN.match(value)) and ":" in match.group(2):
        yield f"{match.group(2)}@"
        yield match.group(2).partition(":")[2]


def without_logins(text: str) -> str:
    """Return a text with the login of each address, and the tokens in its query, replaced by stars."""
    text = _BARE.sub(_HIDDEN, _SCHEME.sub(rf"\1{_HIDDEN}", text)) if "@" in text else text
    return _TOKEN.sub(r"\1***", text) if "=" in text else text


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with these secrets, and the login of each address, replaced by stars."""
    for secret in sorted((secret for secret in secrets if len(secret) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN if secret.endswith("@") else "***")
    return without_logins(text)


_ADDRESS = re.compile(r"(https?|file)://[^\s'\"{}$`;|<>\\]+")
_PATH = re.compile(r"/[A-Za-z0-9_./+@:-]*")


def wrong(label: str, value: object, wanted: str) -> BadInputError:
    """Return the error for an invalid value; `wanted` says what to write."""
    return BadInputError("GS-313", f"{label} = {_short(value)} is not valid", path=label, hint=f"write {wanted}")


def refusing(reference: str, what: str, example: str) -> Callable[..., BadInputError]:
    """Return what makes a setting's errors, of its value in a message that ends with `what`."""

    def refused(label: str, value: object, hint: str = "") -> BadInputError:
        return BadInputError(reference, f"{label}: {str(value)[:80]!r} {what}", path=label, hint=hint or example)

    return refused


def _short(value: object) -> str:
    """Return a value for a message: without a login, at most 80 characters."""
    value = without_login(value)
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "…"


def from_json(text: str) -> Any:
    """Parse JSON; raise ValueError for all that cannot be read, also if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def members(value: Any, first: str) -> dict[str, Any] | None:
    """Read {first: [...], ...}, or the list of `first` alone as words or JSON; None for false, none, off and "".

    Raise ValueError for anything else.
    """
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        value = from_json(value)
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
    """Read a list: JSON, or words separated by commas or spaces."""
    if isinstance(value, str):
        try:
            value = from_json(value) if value.lstrip().startswith("[") else re.split(r"[,\s]+", value.strip())
        except ValueError:
            raise wrong(label, value, 'a list: ["a", "b"]') from None
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise wrong(label, value, 'a list: ["a", "b"]')
    return tuple(item for item in value if item)


def choice(*allowed: str) -> Callable[[Any, str], str]:
    """Return a parser that accepts exactly these words."""

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
    """Read a source of packages: nvidia, distro, a cloud, a mirror's URL, a bundle's path or a file of NVIDIA."""
    text = str(value)
    if holds_login(text):
        raise BadInputError(
            "GS-317",
            f"{label} has a password in its address: it would appear in plans and in files that everyone can read",
            path=label,
        )
    file = text.endswith(".run") or (text.startswith("/") and text.endswith((".deb", ".rpm")))
    if file and file_source(text) is None:
        if "-vgpu-" in text:
            raise wrong(label, value, "the path of a guest driver (…-grid.run): this one is for a vGPU host")
        if "nvidia-linux-grid-" in text:
            raise wrong(label, value, "the path of the guest driver's .run file, published with this package")
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
    """Read a path on the host or an https URL: wheels are not signed, so http would prove nothing."""
    text = str(value)
    proven = _PATH.fullmatch(text) or (_ADDRESS.fullmatch(text) and text.startswith("https://"))
    if holds_login(text) or not proven:
        raise wrong(label, value, "a path on the host, or an https address without a password")
    return text


def sha256(value: Any, label: str) -> str:
    """Read a SHA-256 digest."""
    text = str(value).strip().lower()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise wrong(label, value, "a SHA-256 digest: 64 hexadecimal digits")
    return text


def fingerprints(value: Any, label: str) -> tuple[str, ...]:
    """Read a list of full key fingerprints."""
    prints = tuple(text.replace(" ", "").upper() for text in texts(value, label))
    if not all(re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", text) for text in prints):
        raise wrong(label, value, "full fingerprints: 40 or 64 hexadecimal digits each")
    return prints


def extra_sources(value: Any, label: str) -> tuple[Source, ...]:
    """Read additional repositories."""
    wanted = 'a list of {"name", "urls", "fingerprints", "key"}'
    if isinstance(value, str):
        try:
            value = from_json(value)
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
