"""A web server of our own: a thread for each who asks, TLS with a given certificate, nobody waits for who is silent."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["listening", "place_of", "tls_of"]

_SILENCE = 60
_AT_ONCE = 512


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    """A fleet that was switched on together waits here, not in front of a closed door."""
    tls: ssl.SSLContext | None = None

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.room = threading.BoundedSemaphore(_AT_ONCE)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin no more threads than the memory of a small machine has room for."""
        self.room.acquire()
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the thread of the one who asks: nobody else waits for who never does."""
        request.settimeout(_SILENCE)
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up is no error of ours."""


def listening(
    handler: type[http.server.BaseHTTPRequestHandler], address: str, port: int, tls: tuple[Path, Path] | None
) -> http.server.ThreadingHTTPServer:
    """Return a server that listens, with a certificate and its key where it is to speak TLS."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = type("Server", (_Server,), {"address_family": family})((address, port), handler)
    except OSError as error:
        raise BadInputError(
            "GS-775", f"cannot listen on {address}:{port}: {error.strerror}", path="--listen"
        ) from error
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(*tls)
        except OSError as error:
            server.server_close()
            raise BadInputError(
                "GS-775", f"the certificate or its key cannot be used: {error}", path="--certificate"
            ) from error
        server.tls = context
    served: http.server.ThreadingHTTPServer = server
    return served


def place_of(listen: str) -> tuple[str, int]:
    """Return address and port of `--listen`."""
    address, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise BadInputError("GS-774", f"{listen} is no address and port", path="--listen", hint="--listen 0.0.0.0:8080")
    return address.strip("[]"), int(port)


def tls_of(certificate: str | None, key: str | None) -> tuple[Path, Path] | None:
    """Return what `--certificate` and `--key` name."""
    from pathlib import Path

    if bool(certificate) != bool(key):
        raise BadInputError(
            "GS-774", "TLS needs the certificate and its key", path="--certificate", hint="name both, or none"
        )
    return (Path(certificate), Path(key)) if certificate and key else None
