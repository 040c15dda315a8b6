"""What the commands with a web server share."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli.streams import terminated_is_interrupted
from gpusetup.content import how_to_install
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup_fleet.supply.server import Tls, WebServer


def add_server(parser: argparse.ArgumentParser, listen: str) -> None:
    """Add the options of the commands that run a web server."""
    parser.add_argument("--listen", default=listen, metavar="ADDRESS:PORT", help="default: %(default)s")
    parser.add_argument(
        "--certificate", metavar="FILE", help="with --key: serve over TLS with this certificate chain (PEM)"
    )
    parser.add_argument("--key", metavar="FILE", help="with --certificate: its private key")


def check_server() -> None:
    """Raise an error if the web server is not installed."""
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise BadInputError(
            "GS-989", "the web server is not installed (an extra of gpusetup)", path="gpusetup[collector]",
            context=f"looked for uvicorn and starlette by {sys.executable}",
            hint=how_to_install("gpusetup[collector]"),
        )  # fmt: skip


def listen_address(listen: str) -> tuple[str, int]:
    """Return the address and port of `--listen`."""
    address, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadInputError(
            "GS-774", f"{listen} is not an address and port", path="--listen", hint="--listen 0.0.0.0:8080"
        )
    return address.strip("[]"), int(port)


def tls_of(certificate: str | None, key: str | None, clients: str | None = None) -> Tls | None:
    """Return the files of `--certificate`, `--key` and `--client-ca`, or None without TLS."""
    from gpusetup_fleet.supply.server import Tls

    if not certificate or not key:
        return None
    return Tls(Path(certificate), Path(key), Path(clients) if clients else None)


def served(server: WebServer) -> Exit:
    """Serve until interrupted, which is the normal end."""
    with suppress(KeyboardInterrupt), terminated_is_interrupted():
        server.serve_forever()
    return Exit.DONE
