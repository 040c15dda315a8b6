"""A bundle over HTTP: exactly the files of its manifest, as large as it says."""

from __future__ import annotations

import http.server
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gpusetup.bootstrap.bundle import MANIFEST, read_manifest
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server_of"]

_SILENCE = 60


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the thread of the one who asks: nobody else waits for who never does."""
        request.settimeout(_SILENCE)
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up is no error of ours."""


def server_of(folder: Path, address: str, port: int, tls: tuple[Path, Path] | None) -> http.server.ThreadingHTTPServer:
    """Return a server that listens; what is not in the manifest is not there for it."""
    folder = folder.resolve()
    read_manifest(folder / MANIFEST)

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *words: Any) -> None:
            super().__init__(*words, directory=str(folder))

        def send_head(self) -> Any:
            """Answer for a file of the manifest that is in force now."""
            name = unquote(urlsplit(self.path).path).lstrip("/")
            name += "index.html" if name.endswith("/") else ""
            if name != MANIFEST and name not in read_manifest(folder / MANIFEST)[0].files:
                self.send_error(404, "not in this bundle")
                return None
            return super().send_head()

        def list_directory(self, _path: Any) -> None:
            """Show no folders."""
            self.send_error(404, "not in this bundle")

    try:
        server = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in address else socket.AF_INET})(
            (address, port), Handler
        )
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
