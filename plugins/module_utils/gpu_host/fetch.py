"""Downloads of small files (keys) with proxy, own certificate authority, size limit, digest and deadline."""

import hashlib
import http.client
import io
import lzma
import ssl
import tarfile
import time
import urllib.error
import urllib.request
import zlib

from .failure import HostFailure

_LIMIT = 4 * 1024 * 1024
_TRIES = 4


def fetch(url, network, sha256="", seconds=60, pause=1.0):
    """Return the bytes behind a URL; `network` is {"proxy", "no_proxy", "ca_file"}."""
    if not url.startswith(("https://", "http://", "file:///")):
        raise HostFailure("GS-441", "the address of a signing key is no http(s) URL", url)
    try:
        opener = urllib.request.build_opener(
            _proxies(url, network), urllib.request.HTTPSHandler(context=_trust(network))
        )
        raw = _patiently(opener, url, seconds, pause)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise HostFailure(
            "GS-442",
            f"a signing key could not be downloaded: {reason}",
            url,
            hint="check the address, gpu_proxy, gpu_no_proxy and gpu_ca_file; or give the key itself as `armored`",
        )
    if len(raw) > _LIMIT:
        raise HostFailure("GS-442", f"a signing key is larger than {_LIMIT} bytes: that is no key", url)
    found = hashlib.sha256(raw).hexdigest()
    if sha256 and found != sha256.lower():
        raise HostFailure(
            "GS-443",
            "a downloaded file is not the one that was expected",
            url,
            f"SHA-256 {sha256.lower()} was expected, {found} came",
            "the publisher changed the file, or something between changed it; nothing was installed",
        )
    return raw


def _patiently(opener, url, seconds, pause):
    """Ask again for what broke off or was away for a moment; what the server refuses is refused."""
    late = time.monotonic() + seconds
    for attempt in range(1, _TRIES + 1):
        try:
            return _whole(opener, url, seconds)
        except (OSError, http.client.HTTPException) as error:
            status = getattr(error, "code", 0)
            final = 400 <= status < 500 and status not in (408, 425, 429)
            if final or attempt == _TRIES or time.monotonic() > late or not url.startswith("http"):
                raise
        time.sleep(pause * 2 ** (attempt - 1))
    raise AssertionError(url)


def _whole(opener, url, seconds):
    with opener.open(url, timeout=seconds) as answer:
        raw = answer.read(_LIMIT + 1)
        length = answer.headers.get("Content-Length") or "0"
    if length.isdigit() and len(raw) < min(int(length), _LIMIT + 1):
        raise OSError(f"the answer broke off after {len(raw)} of {length} bytes")
    return raw


def _proxies(url, network):
    host = urllib.request.Request(url).host or ""
    name = host.rsplit("@", 1)[-1].split(":")[0]
    direct = any(name == item or name.endswith("." + item.lstrip(".")) for item in network.get("no_proxy") or [])
    proxy = network.get("proxy")
    if direct:
        return urllib.request.ProxyHandler({})
    return urllib.request.ProxyHandler({"http": proxy, "https": proxy}) if proxy else urllib.request.ProxyHandler()


def _trust(network):
    return ssl.create_default_context(cafile=network.get("ca_file") or None)


def member_of_deb(raw, member):
    """Return one file out of a .deb without installing it."""
    if not raw.startswith(b"!<arch>\n"):
        raise HostFailure("GS-443", "the keyring package is no Debian package")
    at = 8
    while at + 60 <= len(raw):
        name = raw[at : at + 16].decode("ascii", "replace").strip().rstrip("/")
        size = int(raw[at + 48 : at + 58])
        body = raw[at + 60 : at + 60 + size]
        if name.startswith("data.tar"):
            return _member_of_tar(_unpacked(name, body), member)
        at += 60 + size + size % 2
    raise HostFailure("GS-443", "the keyring package holds no data")


def _unpacked(name, body):
    if name.endswith(".gz"):
        return zlib.decompress(body, 31)
    if name.endswith((".xz", ".lzma")):
        return lzma.decompress(body)
    if name.endswith(".tar"):
        return body
    raise HostFailure("GS-443", f"the keyring package is packed as {name}, which cannot be read here")


def _member_of_tar(raw, member):
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for item in archive:
            if item.isfile() and item.name.lstrip("./") == member.lstrip("/"):
                return archive.extractfile(item).read()
    raise HostFailure("GS-443", f"the keyring package does not hold {member}")
