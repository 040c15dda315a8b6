"""Read a package index as pip does: a package's list of files, and metadata without large downloads.

It uses the JSON simple API (PEP 691), or its HTML form if a mirror has no other; metadata sidecars (PEP 658, 714);
parts of wheels and source archives if the index has no sidecar. Every answer is checked: a truncated list, a login page
or a file of another package raise a Fault.
"""

from __future__ import annotations

import hashlib
import html.parser
import json
import os
import re
import sys
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import urljoin, urlsplit

import requests
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from gpusetup.drive import runner
from tools.refresh.asking import TIMEOUT, Fault, Web, plain_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from packaging.tags import Tag

PYPI = "https://pypi.org/simple/"
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_JSON, _HTML = "application/vnd.pypi.simple.v1+json", ("application/vnd.pypi.simple.v1+html", "text/html")
_PAGE, _METADATA, _MEMBER, _SDIST = 64 << 20, 8 << 20, 24 << 20, 128 << 20
_TAIL = 1 << 18
_LONG_GONE = (".egg", ".exe", ".msi", ".rpm", ".deb", ".dmg", ".tar.bz2", ".tar.Z", ".tgz")
"""Formats that PyPI once accepted and no installer supports."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """A file of a release, as the index lists it."""

    name: str
    url: str
    version: Version
    tags: frozenset[Tag]
    """Empty: a source archive."""
    python: str
    date: str
    yanked: bool
    size: int | None
    sidecar: bool | None
    """Whether the index serves the metadata separately; None: unknown."""
    sidecar_sha256: str


def configured_index() -> str:
    """Return the index that pip uses on this machine."""
    said = os.environ.get("PIP_INDEX_URL")
    if not said:
        argv = [sys.executable, "-m", "pip", "config", "list"]
        lines = runner.run(argv, env=os.environ, deadline=60.0).out.splitlines()
        found = [line.partition("=")[2].strip("'\"") for line in lines if line.startswith("global.index-url=")]
        said = found[0] if found else PYPI
    return said.rstrip("/") + "/"


class Index(Web):
    """One package index."""

    def __init__(self, url: str, *, pause: float = 2.0) -> None:
        super().__init__(pause=pause)
        if urlsplit(url).scheme not in ("http", "https"):
            raise Fault(f"{plain_url(url)} is no address of an index: it begins with http:// or https://")
        self.url = url.rstrip("/") + "/"

    def files(self, name: str) -> tuple[list[File], list[str]]:
        """Return the files of a package, and the reasons for those left out."""
        address = urljoin(self.url, f"{canonicalize_name(name, validate=True)}/")
        answer, body = self.get(address, _PAGE, accept=_ACCEPT)
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        where = plain_url(answer.url)
        if kind == _JSON:
            listed = _listed(body, where)
        elif kind in _HTML:
            listed = _anchors(body, where)
        else:
            raise Fault(f"{where} answered with {kind or 'no content type'}, not with a list of files (PEP 503, 691)")
        found, left_out = [], list[str]()
        for entry in (item for item in listed if not str(item.get("filename")).endswith(_LONG_GONE)):
            try:
                found.append(_file(entry, answer.url, name))
            except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion) as error:  # noqa: PERF203
                left_out.append(f"{entry.get('filename')!r}: {error}"[:200])
        return found, left_out

    def sidecar(self, file: File) -> str:
        """Return a wheel's metadata from its sidecar file."""
        _answer, body = self.get(file.url + ".metadata", _METADATA)
        if file.sidecar_sha256 and hashlib.sha256(body).hexdigest() != file.sidecar_sha256:
            raise Fault(f"the metadata of {file.name} has another SHA-256 than the index says")
        return _metadata(body, file)

    def wheel(self, file: File) -> zipfile.ZipFile:
        """Return a wheel whose members can be read one by one."""
        try:
            remote = _Remote(file.url, lambda headers: self.get(file.url, _MEMBER, headers=headers))
            return zipfile.ZipFile(cast("IO[bytes]", remote))
        except zipfile.BadZipFile as error:
            raise Fault(f"{file.name} is no wheel: {error}") from error

    def wheel_metadata(self, file: File) -> str:
        """Return the metadata inside a wheel."""
        with self.wheel(file) as archive:
            names = [
                name
                for name in archive.namelist()
                if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
            ]  # fmt: skip
            if len(names) != 1:
                raise Fault(f"{file.name} holds {len(names)} METADATA files, not one")
            return _metadata(member(archive, names[0]), file)

    def sdist_metadata(self, file: File) -> str:
        """Return the PKG-INFO at the top of a source archive; download only as much as needed."""
        if not file.name.endswith(".tar.gz"):
            raise Fault(f"{file.name} is no .tar.gz")
        try:
            with (
                self.session.get(file.url, stream=True, timeout=TIMEOUT) as answer,
                tarfile.open(fileobj=cast("IO[bytes]", _Limited(answer.raw, _SDIST)), mode="r|gz") as archive,
            ):
                answer.raise_for_status()
                for item in archive:
                    if item.isreg() and re.fullmatch(r"[^/]+/PKG-INFO", item.name) and item.size <= _METADATA:
                        return _metadata(cast("IO[bytes]", archive.extractfile(item)).read(), file)
        except (requests.RequestException, tarfile.TarError, OSError, zlib.error, EOFError) as error:
            raise Fault(f"{file.name} cannot be read: {error}") from error
        raise Fault(f"{file.name} has no PKG-INFO")


class _Remote:
    """A file on a web server, read in ranges; its end, with a wheel's directory, takes one request."""

    def __init__(self, url: str, get: Callable[[dict[str, str]], tuple[requests.Response, bytes]]) -> None:
        self.url, self.get, self.place = url, get, 0
        answer, self.end = get({"Range": f"bytes=-{_TAIL}"})
        self.size = self._size(answer)
        self.start = self.size - len(self.end)

    def _size(self, answer: requests.Response) -> int:
        if answer.status_code == 200:  # a server without ranges; the length limit kept it from being big
            return len(self.end)
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("Content-Range", ""))
        if match is None or int(match[3]) - int(match[1]) != len(self.end):
            raise Fault(f"{plain_url(self.url)} answered another piece than was asked for")
        return int(match[3])

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = 0) -> int:
        place = offset + (0, self.place, self.size)[whence]
        if place < 0:
            raise OSError("before the beginning of the file")
        self.place = place
        return self.place

    def read(self, count: int = -1) -> bytes:
        stop = self.size if count < 0 else min(self.size, self.place + count)
        if self.place >= stop:
            return b""
        if self.place < self.start:
            answer, found = self.get({"Range": f"bytes={self.place}-{stop - 1}"})
            if answer.status_code != 206 or len(found) != stop - self.place:
                raise Fault(f"{plain_url(self.url)} answered another piece than was asked for")
        else:
            found = self.end[self.place - self.start : stop - self.start]
        self.place = stop
        return found


def member(archive: zipfile.ZipFile, name: str, most: int = _MEMBER) -> bytes:
    """Return a member of a wheel; raise if it is too long, by its header or in fact."""
    try:
        with archive.open(name) as stream:
            found = stream.read(most + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Fault(f"{name} in the wheel cannot be read: {error}") from error
    if len(found) > most:
        raise Fault(f"{name} in the wheel is longer than {most >> 20} MiB")
    return found


class _Limited:
    """A stream that raises a Fault beyond its limit."""

    def __init__(self, raw: Any, most: int) -> None:
        self.raw, self.left = raw, most

    def read(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise Fault(f"no PKG-INFO within the first {_SDIST >> 20} MiB")
        return cast("bytes", self.raw.read(count))


def _metadata(body: bytes, file: File) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fault(f"the metadata of {file.name} is not text: {error}") from error
    if not re.match(r"Metadata-Version: *\d", text):
        raise Fault(f"the metadata of {file.name} does not begin with Metadata-Version: is it cut off, or a web page?")
    said = str(HeaderParser().parsestr(text).get("Version", "none")).strip()
    try:
        same = Version(said) == file.version
    except InvalidVersion:
        same = False
    if not same:
        raise Fault(f"the metadata of {file.name} is of another version: {said[:40]}")
    return text


def _listed(body: bytes, where: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(body)
        api, files = document["meta"]["api-version"], document["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise Fault(f"{where} is no whole list of files: {error!r}") from error
    if str(api).partition(".")[0] != "1":
        raise Fault(f"{where} is a list of format {api}, and only 1.x is known here")
    if not isinstance(files, list) or not all(isinstance(item, dict) for item in files):
        raise Fault(f"{where} is no list of files: 'files' holds something else")
    return files


class _Anchors(html.parser.HTMLParser):
    """The links of a PEP 503 page, in the form of the JSON API."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.whole = False
        self._text: dict[str, Any] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            return
        said = dict(attrs)
        url, _, digest = (said.get("href") or "").partition("#")
        name, _, value = digest.partition("=")
        sidecar = said.get("data-core-metadata", said.get("data-dist-info-metadata"))
        self._text = {
            "filename": "",
            "url": url,
            "hashes": {name: value} if value else {},
            "requires-python": said.get("data-requires-python"),
            "yanked": said.get("data-yanked", "") or "data-yanked" in said,
        }
        if sidecar is not None:
            kind, _, value = sidecar.partition("=")
            self._text["core-metadata"] = {kind: value} if value else sidecar != "false"

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text["filename"] += data.strip()

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._text is not None:
            self.found.append(self._text)
            self._text = None
        self.whole = self.whole or tag in ("body", "html")


def _anchors(body: bytes, where: str) -> list[dict[str, Any]]:
    page = _Anchors()
    page.feed(body.decode("utf-8", "replace"))
    if not page.whole:
        raise Fault(f"{where} ends in its middle: the page is not closed")
    if body and not page.found:
        raise Fault(f"{where} lists no file: is it a login page?")
    return page.found


def _file(entry: dict[str, Any], base: str, package: str) -> File:
    name = str(entry.get("filename") or "")
    url = urljoin(base, str(entry.get("url") or ""))
    if urlsplit(url).scheme not in ("http", "https"):
        raise InvalidWheelFilename(f"its address is {plain_url(url)[:80]!r}")
    tags: frozenset[Tag] = frozenset()
    if name.endswith(".whl"):
        project, version, _build, tags = parse_wheel_filename(name)
    else:
        project, version = parse_sdist_filename(name)
    if project != canonicalize_name(package):
        raise InvalidWheelFilename(f"a file of {project!r}")
    said = entry.get("core-metadata", entry.get("dist-info-metadata"))
    digest = str(said.get("sha256") or "") if isinstance(said, dict) else ""
    size = entry.get("size")
    return File(
        name=name,
        url=url,
        version=version,
        tags=tags,
        python=str(entry.get("requires-python") or ""),
        date=str(entry.get("upload-time") or "")[:10],
        yanked=bool(entry.get("yanked")),
        size=size if isinstance(size, int) else None,
        sidecar=None if said is None else bool(said),
        sidecar_sha256=digest if _DIGEST.fullmatch(digest) else "",
    )
