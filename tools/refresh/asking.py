"""Read from a publisher's server or from a folder with copies: complete answers of limited length, else a Fault."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from gpusetup.bootstrap.web import authorities, passes

TIMEOUT = 60
_TRIES, _PATIENCE = 3, 600
_BLOCK = 1 << 16
_LISTING, _DOCUMENT = 4 << 20, 64 << 20
_LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"'<>]{1,200})["']""", re.IGNORECASE)


class Fault(Exception):  # noqa: N818 - it says what is wrong
    """An error of a source, as text; `missing`: it answered that the document does not exist."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


class Contradiction(Fault):
    """A publisher's data contradicts itself."""


def plain_url(url: str) -> str:
    """Return a URL without its login."""
    return re.sub(r"//[^/@\s]*@", "//", url)


class Web:
    """Fetches documents, with retries."""

    def __init__(self, *, pause: float = 2.0) -> None:
        self.pause = pause
        self.away: dict[str, str] = {}
        """Unreachable hosts with the error; they are not tried again."""
        self.session = requests.Session()
        if not os.environ.get("REQUESTS_CA_BUNDLE"):
            self.session.verify = os.environ.get("PIP_CERT") or authorities()

    def get(
        self, url: str, most: int, *, accept: str = "*/*", headers: dict[str, str] | None = None
    ) -> tuple[requests.Response, bytes]:
        """Return a complete answer; retry after interruptions, raise if it is too long."""
        host = urlsplit(url).netloc
        if host in self.away:
            raise Fault(f"{plain_url(url)} was not asked: {self.away[host]}")
        end = time.monotonic() + _PATIENCE
        for attempt in range(1, _TRIES + 1):
            try:
                with self.session.get(
                    url, timeout=TIMEOUT, stream=True, headers={"Accept": accept, **(headers or {})}
                ) as answer:
                    if passes(answer.status_code) and attempt < _TRIES:
                        time.sleep(self.pause * attempt)
                        continue
                    if answer.status_code >= 400:
                        gone = answer.status_code in (404, 410)
                        raise Fault(f"{plain_url(url)} answered {answer.status_code} {answer.reason}", missing=gone)
                    if urlsplit(answer.url).scheme not in ("http", "https"):
                        raise Fault(f"{plain_url(url)} leads to {plain_url(answer.url)}")
                    body = bytearray()
                    while piece := answer.raw.read1(_BLOCK, decode_content=True):
                        body += piece  # what is there: a server that drips is noticed
                        if time.monotonic() > end:
                            raise Fault(f"{plain_url(url)} is too slow: {len(body)} bytes came in {_PATIENCE} s")
                        if len(body) > most:
                            raise Fault(f"{plain_url(url)} is longer than {most >> 20} MiB")
                    return answer, bytes(body)
            except (requests.RequestException, HTTPError) as error:
                if attempt == _TRIES:
                    why = _in_short(error)
                    if isinstance(error, requests.ConnectionError):
                        self.away[host] = f"{plain_url('//' + host).removeprefix('//')} did not answer"
                    raise Fault(f"{plain_url(url)} cannot be read: {why}") from error
                time.sleep(self.pause * attempt)
        raise AssertionError


def _in_short(error: Exception) -> str:
    """Return an error's text without the names of the library's layers."""
    text = plain_url(str(error))
    found = re.findall(r"\[Errno -?[0-9]+\] ([^'\")\]]+)", text)
    return found[-1] if found else text


class Place:
    """Where a publisher's documents are: below a URL, or copies in a folder."""

    def __init__(self, base: str, web: Web) -> None:
        self.base, self.web = base, web

    def __str__(self) -> str:
        return plain_url(self.base)

    def below(self, name: str) -> Place:
        """Return a place below this one."""
        return Place(f"{self.base.rstrip('/')}/{name}", self.web)

    def read(self, name: str = "", most: int = _DOCUMENT) -> bytes:
        """Return a document; `name` is relative to the place; without it the place itself is the document."""
        address = f"{self.base.rstrip('/')}/{name}" if name else self.base
        if "://" in self.base:
            return self.web.get(address, most)[1]
        try:
            path = Path(address)
            if path.stat().st_size > most:
                raise Fault(f"{address} is longer than {most >> 20} MiB")
            return path.read_bytes()
        except OSError as error:
            raise Fault(f"{address}: {error.strerror}", missing=isinstance(error, FileNotFoundError)) from error

    def names(self) -> Iterator[str]:
        """Yield the listed names, each once."""
        if "://" in self.base:
            base = self.base.rstrip("/") + "/"
            page = self.web.get(base, _LISTING)[1].decode("utf-8", "replace")
            links = (urlsplit(urljoin(base, link)).path for link in _LINK.findall(page))
            top = urlsplit(base).path
            yield from dict.fromkeys(unquote(path[len(top) :]) for path in links if path.startswith(top))
            return
        try:
            yield from sorted(path.name for path in Path(self.base).iterdir())
        except OSError as error:
            raise Fault(f"{self.base}: {error.strerror}", missing=True) from error
