"""Serve locks to hosts that pull, and collect their reports, over TLS. Ctrl-C ends it.

Needs gpusetup[collector]. SIGHUP reloads the certificate; refusals go to standard error with address and reason.

DIR holds the database of reports and tokens, and the signed offers. Readers open the fleet's page at /, Prometheus
reads /metrics, programs /v1/fleet; each with its own token.

examples:
  gpusetup fleet token /srv/gpusetup gpu07 --out gpu07.token          a host's token; only its hash is stored here
  gpusetup fleet offer /srv/gpusetup h100 --lock gpu.lock.json --sign ~/.ssh/id_ed25519
  gpusetup fleet collect /srv/gpusetup --certificate site.pem --key site.key
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpusetup.cli import listening, output
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit

__all__ = ["add_arguments", "database", "put_on_record", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder")
    listening.add_arguments(parser, "0.0.0.0:8443")
    parser.add_argument(
        "--client-ca", metavar="FILE", help="a host may show a certificate of this authority instead of a token"
    )
    parser.add_argument("--keep", type=int, default=100, metavar="N", help="reports of each host; default: %(default)s")


def run(arguments: argparse.Namespace) -> Exit:
    """Serve until somebody ends it."""
    listening.check_installed()
    from gpusetup.pull.store import Store
    from gpusetup.pull.web import collector_of

    place = listening.place_of(arguments.listen)
    tls = listening.tls_of(arguments.certificate, arguments.key, arguments.client_ca)
    if arguments.keep < 1:
        raise BadInputError("GS-983", "a collector keeps at least one report of a host", path="--keep")
    store = Store(database(arguments.folder), arguments.keep)
    try:
        server = collector_of(Path(arguments.folder), store, place, tls, output.say)
        output.say(f"collecting at {'https' if tls else 'http'}://{place[0]}:{server.server_port}; Ctrl-C ends it")
        return listening.served(server)
    finally:
        store.close()


def database(folder: str) -> Path:
    """Return where the database is, in a folder that is there from now on and that others cannot read."""
    from gpusetup.pull.store import FILE

    place = Path(folder)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError("GS-971", f"cannot make {folder}: {error.strerror}", path="DIR") from error
    return place / FILE


def put_on_record(folder: Path, event: Literal["offer", "token"], command: str, note: str) -> None:
    """Have it in the collector's audit log, before it is done."""
    from gpusetup.drive.audit import add, line_of

    add(folder, line_of(event, command, note=note))
