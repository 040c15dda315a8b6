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
from gpusetup.errors import Exit

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
    from gpusetup.supply.listening import place_of, tls_of
    from gpusetup.supply.serving import server_of

    address, port = place_of(arguments.listen)
    tls = tls_of(arguments.certificate, arguments.key)
    server = server_of(Path(arguments.folder), address, port, tls)
    kind = "https" if tls else "http"
    output.say(f"serving {arguments.folder} at {kind}://{address}:{server.server_port}; Ctrl-C ends it")
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return Exit.DONE
