"""A bundle over HTTP: exactly the files of its manifest, as large as it says."""

from __future__ import annotations

import http.server
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gpusetup.bootstrap.bundle import MANIFEST, SIGNATURE, read_manifest
from gpusetup.supply.listening import listening

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server_of"]


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
            if name not in (MANIFEST, SIGNATURE) and name not in read_manifest(folder / MANIFEST)[0].files:
                self.send_error(404, "not in this bundle")
                return None
            return super().send_head()

        def list_directory(self, _path: Any) -> None:
            """Show no folders."""
            self.send_error(404, "not in this bundle")

    return listening(Handler, address, port, tls)
