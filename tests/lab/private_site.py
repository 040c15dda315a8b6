"""A site behind a proxy, with a certificate authority of its own: what the lab serves, over HTTPS, and a place for reports.

Its name resolves nowhere: whoever gets an answer asked the proxy, and whoever trusts the answer trusts the authority.
"""

import contextlib
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.certificates import Authority
from tests.lab import network
from tests.lab.repository.serve import Handler

NAME = "files.site.test"


@dataclass
class Site:
    url: str
    proxy: str
    ca: Path
    reports: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """What was posted: the Authorization header and the document."""
    asked: list[str] = field(default_factory=list)
    """What the proxy was asked for."""
    refuse: int = 0
    """So many posts are answered with 503."""


@contextlib.contextmanager
def private_site(folder: Path) -> Iterator[Site]:
    """Serve until the end of the block; the lab's bridge must be up, as it is while there is a host."""
    ca, pair = certificates(folder)
    site = Site(url=f"https://{NAME}", proxy="", ca=ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    web = _Tls((network.GATEWAY, 0), _reporting(site))
    web.context = context
    relay = _Relay((network.GATEWAY, 0), _relay(site, web.server_address[1]))
    site.proxy = f"http://{network.GATEWAY}:{relay.server_address[1]}"
    for server in (web, relay):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        for server in (relay, web):
            server.shutdown()
            server.server_close()


class _Threaded(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Hosts are cut off in the middle of things here."""


class _Tls(_Threaded):
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        super().finish_request(self.context.wrap_socket(request, server_side=True), client_address)


class _Relay(_Threaded):
    pass


def _reporting(site: Site) -> type[Handler]:
    class Reporting(Handler):
        def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if site.refuse > 0:
                site.refuse -= 1
                return self.send_error(503)
            site.reports.append((self.headers.get("Authorization", ""), json.loads(body)))
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None

    return Reporting


def _relay(site: Site, port: int) -> type[socketserver.StreamRequestHandler]:
    class Relay(socketserver.StreamRequestHandler):
        """CONNECT to the site; plain addresses of the lab's own server are fetched for the host."""

        def handle(self) -> None:
            method, target, _ = self.rfile.readline().decode("latin-1").split(" ", 2)
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            site.asked.append(target)
            if method != "CONNECT" or target != f"{NAME}:443":
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection((network.GATEWAY, port)) as there:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pump, args=(there, self.connection), daemon=True)
                back.start()
                _pump(self.connection, there)
                back.join()

    return Relay


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(1 << 16):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def certificates(folder: Path) -> tuple[Path, Path]:
    authority = Authority(folder, "gpusetup lab authority")
    return authority.certificate, authority.pair(NAME)
