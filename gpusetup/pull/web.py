"""The collector over HTTP: reports in; signed offers, the fleet's page, metrics out. It logs nothing that is sent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import http.server
import sqlite3
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gpusetup.errors import BadInputError, wrong_field
from gpusetup.model.pull import Offer, PullReport, SignedOffer
from gpusetup.pull.offers import path_of
from gpusetup.pull.standing import metrics, to_html
from gpusetup.supply.listening import listening

if TYPE_CHECKING:
    from pathlib import Path

    from gpusetup.pull.store import Role, Store

__all__ = ["LIMIT", "collector_of"]

LIMIT = 64 << 10
"""Bytes of a report."""
_JSON = "application/json"
_DRAINED = 1 << 20


class _Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is not granted, and why."""

    def __init__(self, status: int, reference: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.reference, self.message, self.hint = status, reference, message, hint

    def document(self) -> bytes:
        """Return the answer."""
        error = BadInputError(self.reference, self.message, hint=self.hint)
        return msgspec.json.encode(error.to_document())


def collector_of(
    folder: Path, store: Store, address: str, port: int, tls: tuple[Path, Path] | None
) -> http.server.ThreadingHTTPServer:
    """Return a collector that listens."""
    if tls is None and address not in ("127.0.0.1", "::1", "localhost"):
        raise BadInputError(
            "GS-975", "tokens must not go over the network in the clear", path="--certificate",
            hint="give --certificate and --key, or listen on 127.0.0.1 behind a proxy that speaks TLS",
        )  # fmt: skip
    counted: Counter[str] = Counter()
    counting = threading.Lock()

    class Handler(_Handler):
        def answered(self, status: int) -> None:
            with counting:
                counted[str(status)] += 1

    Handler.folder, Handler.store, Handler.counted = folder, store, counted
    return listening(Handler, address, port, tls)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gpusetup", ""
    wbufsize = -1  # one packet for an answer
    disable_nagle_algorithm = True
    folder: Path
    store: Store
    counted: Counter[str]

    def answered(self, status: int) -> None:
        """Count."""

    def log_message(self, *_words: Any) -> None:
        """Say nothing: what hosts report is in the database, and headers hold tokens."""

    def do_POST(self) -> None:
        """Take a report."""
        self._answer(self._report)

    def do_GET(self) -> None:
        """Give an offer, the page, the metrics, the state of all."""
        self._answer(self._asked)

    def do_PUT(self) -> None:
        """Refuse."""
        self._answer(self._nothing)

    do_HEAD = do_DELETE = do_PATCH = do_OPTIONS = do_PUT  # noqa: N815 - the names that http.server calls

    def _nothing(self) -> tuple[int, str, bytes, dict[str, str]]:
        raise _Refusal(405, "GS-976", "nothing here is changed or asked for in this way", "GET, or POST /v1/reports")

    def _answer(self, work: Any) -> None:
        self.unread = int(self.headers["Content-Length"]) if self.headers.get("Content-Length", "").isdigit() else 0
        headers: dict[str, str] = {}
        try:
            status, kind, body, headers = work()
        except _Refusal as refusal:
            status, kind, body = refusal.status, _JSON, refusal.document()
            if refusal.status == 401:
                headers = {"WWW-Authenticate": 'Basic realm="gpusetup"'}
        except (sqlite3.Error, OSError):
            # Nothing was acknowledged: whoever reports asks again.
            full = _Refusal(503, "GS-977", "the collector cannot write or read now", "see the disk it is on, try again")
            status, kind, body = full.status, _JSON, full.document()
        self._drain()
        self.answered(status)
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 304 and self.command != "HEAD":
            self.wfile.write(body)

    def _drain(self) -> None:
        """Read what was sent with a refused request, so that its answer is seen; not without end."""
        if self.unread > _DRAINED or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
        while self.unread and not self.close_connection:
            block = self.rfile.read(min(self.unread, 1 << 16))
            self.unread -= len(block)
            self.close_connection = self.close_connection or not block

    def _who(self, *roles: Role) -> str:
        token = ""
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            token = value.strip()
        elif scheme.lower() == "basic":  # what a browser asks a person for
            try:
                token = base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                token = ""
        found = self.store.who(token) if token else None
        if found is None:
            raise _Refusal(
                401, "GS-978", "no host or reader with this token is known" if token else "a token is needed",
                "gpusetup fleet token writes one",
            )  # fmt: skip
        if found[1] not in roles:
            raise _Refusal(403, "GS-978", f"a token of a {found[1]} does not open this", "ask with another token")
        return found[0]

    def _report(self) -> tuple[int, str, bytes, dict[str, str]]:
        if urlsplit(self.path).path != "/v1/reports":
            raise _Refusal(404, "GS-976", "there is no such place", "POST /v1/reports")
        who = self._who("host")
        if not self.headers.get("Content-Length", "").isdigit():
            raise _Refusal(411, "GS-979", "a report says how long it is", "send Content-Length")
        if self.unread > LIMIT:
            raise _Refusal(
                413, "GS-979", f"a report has at most {LIMIT} bytes", "gpusetup fleet pull sends shorter ones"
            )
        body = self.rfile.read(self.unread)
        if len(body) < self.unread:
            self.unread, self.close_connection = 0, True
            raise _Refusal(400, "GS-979", "the report did not come whole", "send it again")
        self.unread = 0
        try:
            report = msgspec.json.decode(body, type=PullReport)
        except (msgspec.DecodeError, UnicodeError) as error:
            text, where = wrong_field(error)
            raise _Refusal(
                400, "GS-979", f"this is no report: {text} at {where}", "gpusetup export schema pull-report"
            ) from error
        if report.host != who:
            raise _Refusal(
                403, "GS-980", f"the token is {who}'s, the report is about {report.host}", "each host has its own"
            )
        if self.store.add(report, body) == "replayed":
            raise _Refusal(409, "GS-981", f"report {report.number} of {who} is here already", "nothing: it is kept")
        return 200, _JSON, b'{"ok": true}', {}

    def _asked(self) -> tuple[int, str, bytes, dict[str, str]]:
        path = urlsplit(self.path).path
        if path.startswith("/v1/offers/"):
            self._who("host", "reader")
            return self._offer(path.removeprefix("/v1/offers/"))
        if path == "/healthz":
            return 200, "text/plain", b"ok\n", {}
        self._who("reader")
        if path == "/":
            return 200, "text/html; charset=utf-8", to_html(self.store.state(), self._offers()).encode(), {}
        if path == "/metrics":
            text = metrics(self.store.state(), self._offers(), dict(self.counted))
            return 200, "text/plain; version=0.0.4", text.encode(), {}
        if path == "/v1/fleet":
            return 200, _JSON, msgspec.json.encode(self.store.state()), {}
        if path.startswith("/v1/hosts/"):
            found = self.store.reports(path.removeprefix("/v1/hosts/"))
            if found:
                return 200, _JSON, msgspec.json.encode(found), {}
        raise _Refusal(
            404, "GS-976", "there is no such place", "/, /metrics, /v1/fleet, /v1/hosts/NAME, /v1/offers/CLASS"
        )

    def _offer(self, kind: str) -> tuple[int, str, bytes, dict[str, str]]:
        if "/" in kind or kind.startswith(".") or not path_of(self.folder, kind).is_file():
            raise _Refusal(404, "GS-982", f"there is no offer of class {kind}", f"gpusetup fleet offer … {kind}")
        body = path_of(self.folder, kind).read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        known = [one.strip().removeprefix("W/") for one in self.headers.get("If-None-Match", "").split(",")]
        if tag in known or "*" in known:
            return 304, _JSON, b"", {"ETag": tag}
        return 200, _JSON, body, {"ETag": tag, "Cache-Control": "no-cache"}

    def _offers(self) -> dict[str, Offer]:
        """Return what is on offer; a file that is none is told by the hosts that fetch it."""
        found = {}
        for path in sorted((self.folder / "offers").glob("[!.]*.json")):
            with suppress(OSError, msgspec.DecodeError, UnicodeError):
                signed = msgspec.json.decode(path.read_bytes(), type=SignedOffer)
                found[path.stem] = msgspec.json.decode(signed.offer.encode(), type=Offer)
        return found
