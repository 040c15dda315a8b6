"""Download keys and other small files, and a driver's installer, whose interrupted download is resumed."""

import hashlib
import http.client
import io
import lzma
import os
import ssl
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from typing import Any, Callable, Dict, Optional, Tuple

from . import process
from .failure import HostFailure

_LIMIT = 4 * 1024 * 1024
_PIECE = 1 << 16
_KEY_TRIES = 4
PATIENCE = (408, 425, 429)  # these and server errors may be temporary
LOWEST, PERIOD = 1000, 30.0
"""Minimum average in bytes per second, and the seconds over which it is measured; dnf has the same limit."""
_START = 1 << 16
_BLOCK = 1 << 20
_TRIES = 5
"""Tries in a row that bring nothing."""
_SILENCE = 60.0


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect without reading its text, which may never end."""

    def redirect_request(self, request: Any, answer: Any, *told: Any) -> Any:
        """Close the answer, which urllib would read whole."""
        answer.close()
        return super().redirect_request(request, answer, *told)


class _BrokenOff(Exception):  # noqa: N818 - no error yet: it is tried again
    """The download is incomplete; another try may complete it."""


def fetch(url: str, network: Dict[str, Any], sha256: str = "", seconds: float = 60, pause: float = 1.0) -> bytes:
    """Return the bytes at a URL, trying again within `seconds`; `network` is {"proxy", "no_proxy", "ca_file"}."""
    if not url.startswith(("https://", "http://", "file:///")):
        raise HostFailure("GS-441", "the address of a signing key is not an http(s) URL", url)
    raw = _patiently(url, network, time.monotonic() + seconds, pause)
    found = hashlib.sha256(raw).hexdigest()
    if sha256 and found != sha256.lower():
        raise HostFailure(
            "GS-443", "a downloaded file is not the expected one", url,
            f"expected SHA-256 {sha256.lower()}, got {found}",
            "the file changed at the publisher or on the way; nothing was installed",
        )  # fmt: skip
    return raw


def _patiently(url: str, network: Dict[str, Any], end: float, pause: float) -> bytes:
    """Try again after interruptions and temporary errors; a refusal by the server is final."""
    tries = 0
    while True:
        tries += 1
        try:
            return _once(url, network, end)
        except urllib.error.HTTPError as error:
            reason, again = _why(error), error.code >= 500 or error.code in PATIENCE
        except (OSError, http.client.HTTPException, _BrokenOff) as error:
            reason, again = _why(error), not url.startswith("file:")
        except ValueError as error:
            reason, again = _why(error), False
        if not again or tries == _KEY_TRIES or time.monotonic() + pause > end:
            raise HostFailure(
                "GS-442", f"a signing key could not be downloaded: {reason}", url,
                f"tried {tries} times" if tries > 1 else "",
                "check the address, gpu_proxy, gpu_no_proxy and gpu_ca_file; or set the key itself in `armored`",
            )  # fmt: skip
        time.sleep(pause)
        pause *= 2


def _why(error: Exception) -> str:
    """Return why a request failed, in the words of the server or of the system, without the system's number."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    cause = getattr(error, "reason", "") or error
    return str(getattr(cause, "strerror", "") or cause) or repr(cause)


def opened(url: str, network: Dict[str, Any], seconds: float, span: str = "") -> Any:
    """Request a URL, or only the bytes of `span` (such as 0-65535)."""
    trust = ssl.create_default_context(cafile=network.get("ca_file") or None)
    https = urllib.request.HTTPSHandler(context=trust)
    opener = urllib.request.build_opener(_proxies(url, network), https, _Redirects)
    headers = {"Range": "bytes=" + span} if span else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - who calls has refused every other kind
    return opener.open(request, timeout=max(1.0, seconds))


def _once(url: str, network: Dict[str, Any], end: float) -> bytes:
    with opened(url, network, end - time.monotonic()) as answer:
        promised: Optional[str] = answer.headers.get("Content-Length")
        raw = b""
        while True:
            piece: bytes = answer.read1(_PIECE)  # returns what has arrived, so that a slow server is noticed
            raw += piece
            if len(raw) > _LIMIT:
                raise HostFailure("GS-442", f"a signing key is larger than {_LIMIT} bytes: it is not a key", url)
            if not piece:
                break
            if time.monotonic() > end:
                raise _BrokenOff(f"too slow: {len(raw)} bytes came in time")
    if promised is not None and promised.isdigit() and len(raw) < int(promised):
        raise _BrokenOff(f"it stopped after {len(raw)} of {promised} bytes")
    return raw


def _proxies(url: str, network: Dict[str, Any]) -> urllib.request.ProxyHandler:
    host = urllib.request.Request(url).host or ""  # noqa: S310 - fetch() refused every other kind
    name = host.rsplit("@", 1)[-1].split(":")[0]
    direct = any(name == item or name.endswith("." + item.lstrip(".")) for item in network.get("no_proxy") or [])
    proxy = network.get("proxy")
    if direct:
        return urllib.request.ProxyHandler({})
    return urllib.request.ProxyHandler({"http": proxy, "https": proxy}) if proxy else urllib.request.ProxyHandler()


def member_of_deb(raw: bytes, member: str) -> bytes:
    """Return one file out of a .deb without installing it."""
    if not raw.startswith(b"!<arch>\n"):
        raise HostFailure("GS-443", "the keyring package is not a Debian package")
    at = 8
    while at + 60 <= len(raw):
        name = raw[at : at + 16].decode("ascii", "replace").strip().rstrip("/")
        size = raw[at + 48 : at + 58].strip()
        if not size.isdigit():
            break
        body = raw[at + 60 : at + 60 + int(size)]
        if name.startswith("data.tar"):
            try:
                return _member_of_tar(_unpacked(name, body, raw), member)
            except (tarfile.TarError, lzma.LZMAError, zlib.error) as error:
                raise HostFailure("GS-443", f"the keyring package is damaged: {error}") from error
        at += 60 + int(size) + int(size) % 2
    raise HostFailure("GS-443", "the keyring package contains no data")


def _unpacked(name: str, body: bytes, package: bytes) -> bytes:
    if name.endswith(".gz"):
        return zlib.decompress(body, 31)
    if name.endswith((".xz", ".lzma")):
        return lzma.decompress(body)
    if name.endswith(".tar"):
        return body
    if name.endswith(".zst"):
        return _unpacked_by_tools(name, body, package)
    raise HostFailure("GS-443", f"the keyring package is packed as {name}, which cannot be read here")


def _unpacked_by_tools(name: str, body: bytes, package: bytes) -> bytes:
    """Unpack with zstd what Python has no module for, else with a dpkg-deb that can."""
    env = process.environment()
    code, out, error = process.raw(["zstd", "-dc"], env, 60, body)
    if code == 0:
        return out
    handle, path = tempfile.mkstemp(prefix="gpusetup-", suffix=".deb")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(package)
        by_dpkg, out, told = process.raw(["dpkg-deb", "--fsys-tarfile", path], env, 60)
    finally:
        os.unlink(path)
    if by_dpkg == 0:
        return out
    raise HostFailure(
        "GS-443", f"the keyring package is packed as {name}, which cannot be read here",
        note=(error if code != process.MISSING else told).decode("utf-8", "replace").strip()[-300:],
        hint="apt-get install zstd, then repeat; or set the key itself in `armored`",
    )  # fmt: skip


def _member_of_tar(raw: bytes, member: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for item in archive:
            found = archive.extractfile(item) if item.isfile() else None
            if found is not None and item.name.lstrip("./") == member.lstrip("/"):
                return found.read()
    raise HostFailure("GS-443", f"the keyring package does not contain {member}")


class TooSlow(OSError):  # noqa: N818 - it says how it came
    """The download was too slow. It has no errno, because the host is not to blame."""


class Pace:
    """Measures the speed of one download."""

    def __init__(self) -> None:
        self.came, self.began = 0, time.monotonic()

    def came_in(self, count: int) -> None:
        """Count received bytes; raise TooSlow if the last period brought too few."""
        self.came += count
        took = time.monotonic() - self.began
        if took < PERIOD:
            return
        if self.came < LOWEST * took:
            raise TooSlow(f"it is too slow: {self.came} bytes came in {took:.0f} s, less than {LOWEST} a second")
        self.came, self.began = 0, self.began + took


def is_address(path: str) -> bool:
    return path.startswith(("https://", "http://"))


def place(state_dir: str, url: str) -> str:
    """Return the path of a downloaded file on this host."""
    return os.path.join(state_dir, "installers", url.rsplit("/", 1)[-1])


def start_of(url: str, network: Dict[str, Any]) -> Tuple[bytes, int]:
    """Return the first bytes of a file at an address and its whole length, 0 if the server does not report it."""
    try:
        with opened(url, network, _SILENCE, f"0-{_START - 1}") as answer:
            first: bytes = answer.read(_START)
            return first, _length(answer, 0)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failure(url, error) from error


def bring(url: str, network: Dict[str, Any], state_dir: str, tell: Callable[..., None], pause: float = 2.0) -> str:
    """Download a file unless it exists; return its path. The next try continues an interrupted one."""
    target = place(state_dir, url)
    if os.path.isfile(target):
        return target
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    part, without = target + ".part", 0
    while True:
        before = _size(part)
        try:
            if _go_on(url, network, part, before, tell):
                os.rename(part, target)
                return target
            problem: Exception = OSError("the server ended it too early")
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the partial file is no longer the beginning of the server's file
                os.unlink(part)
            elif error.code < 500 and error.code not in PATIENCE:
                raise _failure(url, error) from error
            problem = error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as error:
            problem = error
        except OSError as error:
            if error.errno is not None:  # a problem of this host: no space, no permission
                raise _failure(url, error) from error
            problem = error
        without = without + 1 if _size(part) <= before or isinstance(problem, TooSlow) else 0
        if without == _TRIES:
            raise _failure(url, problem)
        time.sleep(pause * (1 + without))


def _go_on(url: str, network: Dict[str, Any], part: str, have: int, tell: Callable[..., None]) -> bool:
    """Append to a partial file; return whether it is complete."""
    with opened(url, network, _SILENCE, f"{have}-" if have else "") as answer:
        goes_on = answer.getcode() == 206
        whole = _length(answer, have if goes_on else 0)
        here, counted = have if goes_on else 0, Pace()
        with open(part, "ab" if goes_on else "wb") as stream:
            os.chmod(part, 0o600)
            while True:
                piece = answer.read1(_BLOCK)
                if not piece:
                    break
                stream.write(piece)
                counted.came_in(len(piece))
                here += len(piece)
                tell("download", "downloading the .run installer", 100 * here // whole if whole else None)
            stream.flush()
            os.fsync(stream.fileno())
        return not whole or here == whole


def _length(answer: Any, have: int) -> int:
    """Return the whole length, from the headers of the requested part."""
    ranged = str(answer.headers.get("Content-Range") or "").rpartition("/")[2]
    length = str(answer.headers.get("Content-Length") or "")
    return int(ranged) if ranged.isdigit() else have + int(length) if length.isdigit() else 0


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _failure(url: str, error: Exception) -> HostFailure:
    return HostFailure(
        "GS-479", f"the .run installer could not be downloaded: {_why(error)}", url,
        hint="check the address, gpusetup_proxy and the host's network; or copy the file to the host and name its path",
    )  # fmt: skip
