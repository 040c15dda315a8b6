"""The collector's HTTP server: takes reports; serves signed offers, the fleet's page and metrics; logs refusals."""

import asyncio
import base64
import binascii
import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gpusetup.errors import BadInputError, wrong_field
from gpusetup.model import UNDECODED
from gpusetup_fleet.model.pull import Offer, PullReport, SignedOffer
from gpusetup_fleet.pull.fleet_page import metrics, to_html
from gpusetup_fleet.pull.offers import NAME, path_of
from gpusetup_fleet.pull.store import Role, Store
from gpusetup_fleet.supply.server import Limits, Refusals, Tls, WebServer

LIMIT = 64 << 10
"""Largest report, in bytes."""
FAILURES = 20
"""Failed sign-ins per address and minute; after that a wrong token gets 429. A right one still works."""
_MINUTE = 60.0
_ADDRESSES = 10_000
_JSON = "application/json"
_DRAINED = 1 << 20
_LONGEST_NAME = 200
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every answer: no scripts, no frames, no caching."""


class _Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A refused request: status, reference, reason."""

    def __init__(self, status: int, reference: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.reference, self.message, self.hint = status, reference, message, hint

    def response(self) -> Response:
        """Return the HTTP response."""
        error = BadInputError(self.reference, self.message, hint=self.hint)
        headers = {401: {"WWW-Authenticate": 'Basic realm="gpusetup"'}, 429: {"Retry-After": "60"}}
        return Response(msgspec.json.encode(error.to_document()), self.status, headers.get(self.status), _JSON)


def collector_of(
    folder: Path,
    store: Store,
    place: tuple[str, int],
    tls: Tls | None,
    say: Callable[[str], None],
    *,
    limits: Limits | None = None,
) -> WebServer:
    """Return a collector that listens on an address and port."""
    if tls is None and place[0] not in ("127.0.0.1", "::1", "localhost"):
        raise BadInputError("GS-975", "tokens must not go over the network in the clear", path="--certificate")
    refusals, limits = Refusals(say), limits or Limits()
    if tls is None:  # all connections come from the proxy
        limits = limits._replace(of_an_address=limits.connections)
    return WebServer(Collector(folder, store, refusals, behind=tls is None), place, tls, refusals, limits)


class Collector:
    """The ASGI application."""

    def __init__(self, folder: Path, store: Store, refusals: Refusals, *, behind: bool) -> None:
        self.folder, self.store, self.refusals, self.behind = folder, store, refusals, behind
        self.counted: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.since = time.monotonic()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        where = self._address(request)
        try:
            response = await self._answered(request, where)
        except ClientDisconnect:
            return
        except _Refusal as refusal:
            with suppress(ClientDisconnect):
                await _drain(request)
            what = f"{refusal.status} {request.method} {scope['path']}: {refusal.message} [{refusal.reference}]"
            self.refusals.tell(where, what)
            response = refusal.response()
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if "transfer-encoding" in request.headers or _length(request) > _DRAINED:
            response.headers["Connection"] = "close"
        self.counted[str(response.status_code)] += 1
        await response(scope, receive, send)

    async def _answered(self, request: Request, where: str) -> Response:
        try:
            if "transfer-encoding" in request.headers and "content-length" in request.headers:
                raise _Refusal(400, "GS-979", "a request has one length, not two", "send Content-Length alone")
            if request.method == "POST":
                return await self._report(request, where)
            if request.method == "GET":
                return await self._asked(request, where)
        except (sqlite3.Error, OSError) as error:
            # Nothing was acknowledged: the host sends its report again.
            raise _Refusal(
                503, "GS-977", "the collector cannot write or read now", "see the disk it is on, try again"
            ) from error
        raise _Refusal(405, "GS-976", "nothing here is changed or asked for in this way", "GET, or POST /v1/reports")

    def _address(self, request: Request) -> str:
        """Return the client's address; behind a proxy the one that the proxy added."""
        if self.behind and (told := request.headers.get("X-Forwarded-For", "")):
            return told.rpartition(",")[2].strip()[:64]
        return request.client.host if request.client else "-"

    def _who(self, request: Request, where: str, *roles: Role) -> tuple[str, ...]:
        """Return the names that the token or the client certificate stands for; raise if it has none of these roles."""
        token = _token(request.headers.get("Authorization", ""))
        if not token and "host" in roles and (names := request.scope.get("gpusetup.certificate")):
            found: tuple[str, ...] = names
            return found
        known = self.store.who(token) if token else None
        if known is None:
            self._failed(where)
            raise _Refusal(
                401, "GS-978", "no host or reader with this token is known" if token else "a token is needed",
                "gpusetup fleet token writes one",
            )  # fmt: skip
        if known[1] not in roles:
            raise _Refusal(403, "GS-978", f"a token of a {known[1]} does not open this", "use another token")
        return (known[0],)

    def _failed(self, where: str) -> None:
        """Count a failed sign-in; raise once an address has too many."""
        if time.monotonic() - self.since > _MINUTE or len(self.failed) > _ADDRESSES:
            self.failed.clear()
            self.since = time.monotonic()
        self.failed[where] += 1
        if self.failed[where] > FAILURES:
            raise _Refusal(429, "GS-978", "too many sign-ins of this address failed", "wait a minute; see the token")

    async def _report(self, request: Request, where: str) -> Response:
        if request.url.path != "/v1/reports":
            raise _Refusal(404, "GS-976", "no such address", "POST /v1/reports")
        who = self._who(request, where, "host")
        if "content-length" not in request.headers:
            raise _Refusal(411, "GS-979", "a report needs a Content-Length", "send Content-Length")
        if _length(request) > LIMIT:
            raise _Refusal(
                413, "GS-979", f"a report has at most {LIMIT} bytes", "gpusetup fleet pull sends shorter ones"
            )
        body = await request.body()
        try:
            report = msgspec.json.decode(body, type=PullReport)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            text, place = wrong_field(error)
            raise _Refusal(
                400, "GS-979", f"this is not a report: {text} at {place}", "gpusetup export schema pull-report"
            ) from error
        if report.host not in who:
            raise _Refusal(
                403, "GS-980", f"the token is {', '.join(who)}'s, the report is about {report.host}",
                "each host has its own",
            )  # fmt: skip
        if await asyncio.wrap_future(self.store.add(report, body)) == "replayed":
            raise _Refusal(
                409, "GS-981", f"report {report.number} of {report.host} is here already", "nothing: it is kept"
            )
        return Response(b'{"ok": true}', 200, media_type=_JSON)

    async def _asked(self, request: Request, where: str) -> Response:
        path = request.url.path
        if path.startswith("/v1/offers/"):
            self._who(request, where, "host", "reader")
            return self._offer(path.removeprefix("/v1/offers/"), request.headers.get("If-None-Match", ""))
        if path == "/healthz":
            return Response(b"ok\n", 200, media_type="text/plain")
        self._who(request, where, "reader")
        return await run_in_threadpool(self._read, path)

    def _read(self, path: str) -> Response:
        if path == "/":
            return Response(to_html(self.store.state(), self._offers()), 200, media_type="text/html")
        if path == "/metrics":
            text = metrics(self.store.state(), self._offers(), dict(self.counted))
            return Response(text, 200, {"Content-Type": "text/plain; version=0.0.4"})
        if path == "/v1/fleet":
            return Response(msgspec.json.encode(self.store.state()), 200, media_type=_JSON)
        if path.startswith("/v1/hosts/"):
            found = self.store.reports(path.removeprefix("/v1/hosts/"))
            if found:
                return Response(msgspec.json.encode(found), 200, media_type=_JSON)
        raise _Refusal(404, "GS-976", "no such address", "/, /metrics, /v1/fleet, /v1/hosts/NAME, /v1/offers/CLASS")

    def _offer(self, kind: str, known: str) -> Response:
        body = None
        if NAME.fullmatch(kind) and len(kind) <= _LONGEST_NAME:
            body = _own_file(path_of(self.folder, kind))
        if body is None:
            raise _Refusal(404, "GS-982", f"there is no offer of class {kind}", f"gpusetup fleet offer … {kind}")
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        tags = [one.strip().removeprefix("W/") for one in known.split(",")]
        if tag in tags or "*" in tags:
            return Response(None, 304, {"ETag": tag})
        return Response(body, 200, {"ETag": tag, "Cache-Control": "no-cache"}, _JSON)

    def _offers(self) -> dict[str, Offer]:
        """Return the offers by class; skip files that are none, since hosts that fetch them report that."""
        found = {}
        for path in sorted((self.folder / "offers").glob("[!.]*.json")):
            with suppress(OSError, *UNDECODED):
                signed = msgspec.json.decode(path.read_bytes(), type=SignedOffer)
                found[path.stem] = msgspec.json.decode(signed.offer.encode(), type=Offer)
        return found


def _token(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":  # what a browser asks its user for
        with suppress(binascii.Error, UnicodeError, ValueError):
            return base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
    return ""


def _length(request: Request) -> int:
    told = request.headers.get("Content-Length", "0")
    return int(told) if told.isascii() and told.isdigit() else 0


async def _drain(request: Request) -> None:
    """Read the body of a refused request up to a limit, so that the client sees the answer."""
    if _length(request) <= _DRAINED and "transfer-encoding" not in request.headers:
        with suppress(RuntimeError):  # it was read already
            async for _block in request.stream():
                pass


def _own_file(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist or is a link, which could point anywhere."""
    try:
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
        ) as opened:
            return opened.read()
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        if path.is_symlink():
            return None
        raise error from None
