"""The options of the commands that run a web server."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.supply.server import Tls, WebServer


def add_arguments(parser: argparse.ArgumentParser, listen: str) -> None:
    """Add the options of every server."""
    parser.add_argument("--listen", default=listen, metavar="ADDRESS:PORT", help="default: %(default)s")
    parser.add_argument("--certificate", metavar="FILE", help="serve over TLS with this certificate chain (PEM)")
    parser.add_argument("--key", metavar="FILE", help="its private key")


def check_installed() -> None:
    """Raise an error if the web server is not installed."""
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise BadInputError(
            "GS-989", "the web server is not installed (an extra of gpusetup)", path="gpusetup[collector]",
            context=f"looked for uvicorn and starlette by {sys.executable}",
            hint=f"{sys.executable} -m pip install 'gpusetup[collector]'",
        )  # fmt: skip


def place_of(listen: str) -> tuple[str, int]:
    """Return the address and port of `--listen`."""
    address, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadInputError(
            "GS-774", f"{listen} is not an address and port", path="--listen", hint="--listen 0.0.0.0:8080"
        )
    return address.strip("[]"), int(port)


def tls_of(certificate: str | None, key: str | None, clients: str | None = None) -> Tls | None:
    """Return the files of `--certificate`, `--key` and `--client-ca`, or None without TLS."""
    from gpusetup.supply.server import Tls

    if bool(certificate) != bool(key):
        raise BadInputError(
            "GS-774", "TLS needs the certificate and its key", path="--certificate", hint="name both, or none"
        )
    if clients and not certificate:
        raise BadInputError(
            "GS-774", "certificates of clients need TLS", path="--client-ca", hint="name --certificate and --key too"
        )
    if not certificate or not key:
        return None
    return Tls(Path(certificate), Path(key), Path(clients) if clients else None)


def served(server: WebServer) -> Exit:
    """Serve until interrupted, which is the normal end."""
    from gpusetup.cli.apply import terminated_is_interrupted

    try:
        with terminated_is_interrupted():
            server.serve_forever()
    except KeyboardInterrupt:
        return Exit.DONE
    return Exit.DONE
