"""The web server of the collector and of bundles: uvicorn with h11, behind limits for its clients.

Connections are limited before the TLS handshake: in all, and per address. When the server is full, the address with the
most connections loses its oldest one. Handshakes and requests have deadlines. Each refusal is one line of the log with
address and reason; it contains no secrets.
"""

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import h11
import msgspec
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, PlainTextResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpusetup.bootstrap.bundle import MANIFEST, SIGNATURE, read_manifest
from gpusetup.errors import BadInputError, reason
from gpusetup.model import visible

_FAIR = 4
"""An address with at most this many connections loses none to another address."""
_A_MINUTE = 60.0
_MOMENT = 0.5
_LINES = 10
_ADDRESSES = 10_000
_LONGEST = 200


class Tls(NamedTuple):
    """The server's certificate and key, and the authority of client certificates."""

    certificate: Path
    key: Path
    clients: Path | None = None
    """An authority: a client with a certificate from it counts as the host named there."""

    def context(self) -> ssl.SSLContext:
        """Return the context for TLS 1.2 and newer."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.clients is not None:
                context.load_verify_locations(self.clients)
                context.verify_mode = ssl.CERT_OPTIONAL
        except OSError as error:
            raise BadInputError(
                "GS-775", f"the certificate or its key cannot be used: {reason(error)}", path="--certificate",
                hint="name files in PEM that exist and belong together: --certificate FILE --key FILE",
            ) from error  # fmt: skip
        return context


class Limits(NamedTuple):
    """Limits for connections and requests; times in seconds."""

    connections: int = 512
    """With TLS each costs up to 300 KiB before its first request."""
    of_an_address: int = 64
    handshake: float = 5.0
    request: float = 20.0
    """From the first byte of a request to the last byte of its answer."""
    answers_end: bool = True
    """Whether the deadline includes the answer: not for bundles, whose files may take long."""
    idle: float = 5.0


class Refusals:
    """The log of refusals: a few lines per address and minute, then only how many more there were."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._writing = say, threading.Lock()
        self._counted: Counter[str] = Counter()
        self._begun = time.monotonic()

    def tell(self, address: str, what: str) -> None:
        """Write a line, unless this address has its lines for this minute."""
        with self._writing, suppress(OSError):  # a full disk must not stop the server
            if time.monotonic() - self._begun > _A_MINUTE or len(self._counted) > _ADDRESSES:
                for one, number in self._counted.items():
                    if number > _LINES:
                        self._say(f"{one} and {number - _LINES} refusals more")
                self._counted.clear()
                self._begun = time.monotonic()
            self._counted[address] += 1
            if self._counted[address] <= _LINES:
                self._say(f"{address} {visible(what)[:_LONGEST]}")


class _Place:
    """One accepted connection, until it ends."""

    task: asyncio.Task[None]
    transport: asyncio.Transport | None = None

    def __init__(self, address: str) -> None:
        self.address = address

    def leave(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        else:
            self.task.cancel()


class _Door:
    """Admits connections up to the limits; when full, it closes the oldest one of the address with the most."""

    def __init__(self, limits: Limits, refusals: Refusals) -> None:
        self.limits, self.refusals = limits, refusals
        self.inside: dict[str, dict[_Place, None]] = {}
        self.number = 0

    def entered(self, address: str) -> _Place | None:
        """Return a place for a new connection, or None if all are taken and no address has too many."""
        mine = self.inside.get(address, {})
        if len(mine) >= self.limits.of_an_address:
            self._leave(next(iter(mine)), "too many connections of this address")
        elif self.number >= self.limits.connections:
            most = max(self.inside.values(), key=len)
            if len(most) <= max(_FAIR, len(mine)):
                self.refusals.tell(address, "all places are taken")
                return None
            self._leave(next(iter(most)), "too many connections of this address, and others wait")
        place = _Place(address)
        self.inside.setdefault(address, {})[place] = None
        self.number += 1
        return place

    def ended(self, place: _Place) -> None:
        """Free a place; freeing it twice does nothing."""
        mine = self.inside.get(place.address, {})
        if place in mine:
            del mine[place]
            self.number -= 1
            if not mine:
                del self.inside[place.address]

    def _leave(self, place: _Place, why: str) -> None:
        self.refusals.tell(place.address, why)
        self.ended(place)
        place.leave()


class _Connection(H11Protocol):
    """An HTTP connection with a deadline per request and the names of the client's certificate."""

    def __init__(self, door: _Door, place: _Place, *words: Any) -> None:
        super().__init__(*words)
        self.door, self.place, self.limits = door, place, door.limits
        self.deadline: asyncio.TimerHandle | None = None
        self.refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.place.transport = transport
        names = _names(transport.get_extra_info("peercert"))
        inner = self.app

        async def told(scope: Any, receive: Any, send: Any) -> None:
            await inner({**scope, "gpusetup.certificate": names}, receive, send)

        self.app = told
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self.door.ended(self.place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if not self.limits.answers_end and self.cycle is not None and not self.cycle.response_complete:
            self._end()

    def on_response_complete(self) -> None:
        self._begin()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        self._refuse(400, "this is not a request of HTTP/1.1")

    def _begin(self) -> None:
        self._end()
        self.deadline = self.loop.call_later(self.limits.request, self._late)

    def _end(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()

    def _late(self) -> None:
        self._refuse(408, "the request took too long")

    def _refuse(self, status: int, why: str) -> None:
        self.refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True  # uvicorn drops an answer that comes later
        self.door.refusals.tell(self.place.address, f"{status} {why} [GS-976]")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            hint = "send a complete HTTP/1.1 request"
            body = msgspec.json.encode(BadInputError("GS-976", why, hint=hint).to_document())
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
            response = h11.Response(status_code=status, headers=[*headers, ("Connection", "close")])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        # Input is ignored for a moment: if the socket closed at once, the client would lose the answer.
        self.loop.call_later(_MOMENT, self.transport.close)
        self.loop.call_later(2 * _MOMENT, self.transport.abort)


class WebServer(uvicorn.Server):
    """A server of one ASGI application."""

    def __init__(self, app: Any, place: tuple[str, int], tls: Tls | None, refusals: Refusals, limits: Limits) -> None:
        self.refusals = refusals
        super().__init__(
            uvicorn.Config(
                app, http=_Connection, loop="auto", lifespan="off", ws="none", access_log=False, log_config=None,
                server_header=False, proxy_headers=False, interface="asgi3", timeout_graceful_shutdown=10,
                timeout_keep_alive=int(limits.idle),
            )
        )  # fmt: skip
        self.tls, self.context = tls, tls.context() if tls is not None else None
        self.door, self.listening = _Door(limits, refusals), _listening(*place)
        self.server_port: int = self.listening.getsockname()[1]
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # a client that hangs up is not an error here

    def serve_forever(self) -> None:
        """Serve until `stop`, SIGTERM or Ctrl-C; finish the requests that have begun."""
        self.run()

    def stop(self) -> None:
        """End the server."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's own
        """Accept connections, and notify systemd."""
        loop = asyncio.get_running_loop()
        self.admitting = loop.create_task(self._admit())
        self.servers = []
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, self.reload)
        self.started = True
        _notify("READY=1")

    async def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self.listening)
            except OSError as error:  # too many open files, or a client that hung up in the queue
                self.refusals.tell("-", f"a connection could not be taken: {reason(error)}")
                await asyncio.sleep(_MOMENT)
                continue
            place = self.door.entered(_client(str(address[0])))
            if place is None:
                accepted.close()
            else:
                place.task = loop.create_task(self._shake_hands(accepted, place))
            await asyncio.sleep(0)  # a flood of connections must not stop those that are served

    async def _shake_hands(self, accepted: socket.socket, place: _Place) -> None:
        ends: dict[str, Any] = {}
        if self.context is not None:
            ends["ssl_handshake_timeout"] = self.door.limits.handshake
            if sys.version_info >= (3, 11):
                ends["ssl_shutdown_timeout"] = 2.0

        def connection() -> asyncio.Protocol:
            return _Connection(self.door, place, self.config, self.server_state, {})

        loop = asyncio.get_running_loop()
        try:
            accepted.setblocking(False)
            await loop.connect_accepted_socket(connection, accepted, ssl=self.context, **ends)
        except (OSError, asyncio.TimeoutError) as error:
            self.refusals.tell(place.address, f"the TLS handshake came to nothing: {reason(error)}")
        except asyncio.CancelledError:
            pass  # another connection got its place
        else:
            return
        self.door.ended(place)
        accepted.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, finish the requests that have begun."""
        _notify("STOPPING=1")
        self.admitting.cancel()
        self.listening.close()
        await super().shutdown(sockets)

    def reload(self) -> None:
        """Read the certificate again; open connections keep the old one."""
        _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        done = True
        if self.tls is not None:
            try:
                self.context = self.tls.context()
                self.refusals.tell("-", "the certificate was read again")
            except BadInputError as error:
                self.refusals.tell("-", f"the certificate of before stays: {error}")
                done = False
        _notify("READY=1")
        _leave_sign(done)


def _leave_sign(done: bool) -> None:
    """Write the exit status of the reload to the file that the unit's ExecReload waits for."""
    folder = Path(os.environ.get("RUNTIME_DIRECTORY", ""))
    if folder.is_absolute() and folder.is_dir():
        (folder / "reloaded").write_text("0\n" if done else "1\n", encoding="ascii")


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((address, port))
        door.listen(1024)
        door.setblocking(False)
    except OSError as error:
        door.close()
        raise BadInputError(
            "GS-775", f"cannot listen on {address}:{port}: {error.strerror}", path="--listen"
        ) from error
    return door


def _client(address: str) -> str:
    """Return what counts as one client: an address of IPv4, or the network of 64 bits that one machine has of IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def _names(certificate: Any) -> tuple[str, ...]:
    """Return the DNS names of a client's certificate, else its common name."""
    if not certificate:
        return ()
    names = tuple(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
    common = (value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName")
    return names or tuple(common)


def _notify(state: str) -> None:
    """Notify systemd, where the unit asks for it (sd_notify)."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.sendto(state.encode(), f"\0{where[1:]}" if where.startswith("@") else where)


def server_of(folder: Path, place: tuple[str, int], tls: Tls | None, say: Callable[[str], None]) -> WebServer:
    """Return a listening server of a bundle, which serves the files of its manifest only."""
    folder = folder.resolve()
    read_manifest(folder / MANIFEST)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (await _answer(folder, scope["method"], scope["path"]))(scope, receive, send)

    return WebServer(app, place, tls, Refusals(say), Limits(answers_end=False))


@lru_cache(maxsize=1)
def _files(folder: Path, _stamp: tuple[int, ...]) -> frozenset[str]:
    """Return what may be fetched; a fleet asks for each of thousands of files, so each manifest is read once."""
    return frozenset((MANIFEST, SIGNATURE, *read_manifest(folder / MANIFEST)[0].files))


async def _answer(folder: Path, method: str, path: str) -> Response:
    if method not in ("GET", "HEAD"):
        return PlainTextResponse("only GET and HEAD\n", 405)
    name = path.lstrip("/")
    name += "index.html" if name.endswith("/") else ""
    try:
        # The bundle may be renewed while it is served.
        now = (folder / MANIFEST).stat()
        files = await run_in_threadpool(_files, folder, (now.st_ino, now.st_mtime_ns, now.st_size))
    except (OSError, BadInputError):
        return PlainTextResponse("the bundle cannot be read now\n", 503)
    if name not in files or not (folder / name).is_file():
        return PlainTextResponse("not in this bundle\n", 404)
    return FileResponse(folder / name)
