"""Serve a bundle to hosts that fetch: what its manifest names, and nothing else. Ctrl-C ends it.

Any static web server does as well, and is the better one for hundreds of hosts.

examples:
  gpusetup bundle serve site
  gpusetup bundle serve site --listen 10.0.0.5:8443 --certificate site.pem --key site.key
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the bundle")
    parser.add_argument("--listen", default="0.0.0.0:8080", metavar="ADDRESS:PORT", help="default: %(default)s")
    parser.add_argument("--certificate", metavar="FILE", help="serve over TLS with this certificate chain (PEM)")
    parser.add_argument("--key", metavar="FILE", help="its private key")


def run(arguments: argparse.Namespace) -> Exit:
    """Serve until somebody ends it."""
    from gpusetup.supply.serving import server_of

    address, _, port = arguments.listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise BadInputError(
            "GS-774", f"{arguments.listen} is no address and port", path="--listen", hint="--listen 0.0.0.0:8080"
        )
    if bool(arguments.certificate) != bool(arguments.key):
        raise BadInputError(
            "GS-774", "TLS needs the certificate and its key", path="--certificate", hint="name both, or none"
        )
    tls = (Path(arguments.certificate), Path(arguments.key)) if arguments.certificate else None
    server = server_of(Path(arguments.folder), address.strip("[]"), int(port), tls)
    kind = "https" if tls else "http"
    output.say(f"serving {arguments.folder} at {kind}://{address}:{server.server_port}; Ctrl-C ends it")
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return Exit.DONE
