"""Serve a bundle to hosts: the files of its manifest, and nothing else. Ctrl-C ends it.

Needs gpusetup[collector]. For hundreds of hosts use a static web server.

examples:
  gpusetup bundle serve site
  gpusetup bundle serve site --listen 10.0.0.5:8443 --certificate site.pem --key site.key
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import listening, output

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the bundle")
    listening.add_arguments(parser, "0.0.0.0:8080")


def run(arguments: argparse.Namespace) -> Exit:
    """Serve until somebody ends it."""
    listening.check_installed()
    from gpusetup.supply.server import server_of

    place = listening.place_of(arguments.listen)
    tls = listening.tls_of(arguments.certificate, arguments.key)
    server = server_of(Path(arguments.folder), place, tls, output.say)
    kind = "https" if tls else "http"
    output.say(f"serving {arguments.folder} at {kind}://{place[0]}:{server.server_port}; Ctrl-C ends it")
    return listening.served(server)
