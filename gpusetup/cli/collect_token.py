"""Make the token of a host that reports, or of a reader.

A new token replaces the old one, at once or after --overlap hours.

The collector stores only its hash. The token goes into the file of --out, or to standard output, never into a log.

examples:
  gpusetup fleet token /srv/gpusetup gpu07 --out gpu07.token
  gpusetup fleet token /srv/gpusetup prometheus --reader --out prometheus.token
  gpusetup fleet token /srv/gpusetup gpu07 --days 90 --overlap 24 --out gpu07.token
  gpusetup fleet token /srv/gpusetup gpu07 --remove
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpusetup.cli import output
from gpusetup.cli.collect import database, put_on_record
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder")
    parser.add_argument("name", metavar="NAME", help="the host's name in its reports, or the reader's")
    parser.add_argument("--reader", action="store_true", help="a reader of the page, the metrics and all hosts' states")
    parser.add_argument("--days", type=int, default=0, metavar="N", help="expires after N days; default: never")
    parser.add_argument(
        "--overlap",
        type=int,
        default=0,
        metavar="HOURS",
        help="hours during which the old token stays valid; default: 0",
    )
    parser.add_argument("--remove", action="store_true", help="revoke the token")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--out", metavar="FILE", help="write the token to FILE, readable by you alone")


def run(arguments: argparse.Namespace) -> Exit:
    """Make it, or take it back."""
    from gpusetup.model.pull import TokenMade
    from gpusetup.pull.offers import checked_name
    from gpusetup.pull.store import make_token, remove_token

    if arguments.days < 0 or arguments.overlap < 0:
        raise BadInputError("GS-984", "a time cannot be negative", path="--days" if arguments.days < 0 else "--overlap")
    name = checked_name(arguments.name, "NAME")
    role: Literal["host", "reader"] = "reader" if arguments.reader else "host"
    path = database(arguments.folder)
    put_on_record(path.parent, "token", "fleet token", f"{role} {name}{': taken back' if arguments.remove else ''}")
    if arguments.remove:
        if not remove_token(path, name, role):
            raise BadInputError("GS-984", f"there is no {role} {name} here", path="NAME")
        said = f"{name}: its token is worth nothing from now on"
    else:
        if arguments.format == "json" and not arguments.out:
            raise BadInputError("GS-984", "an answer in a file must not hold a token", path="--out", hint="--out FILE")
        token = make_token(path, name, role, days=arguments.days, overlap=arguments.overlap)
        if not arguments.out:
            output.write_answer(token, None)
            return Exit.DONE
        _write(arguments.out, token)
        said = f"{arguments.out}: the token of {name}"
    if arguments.format == "json":
        output.write_answer(output.json_text(TokenMade(name=name, role=role, path=arguments.out or "")), None)
    else:
        output.say(said)
    return Exit.DONE


def _write(out: str, token: str) -> None:
    from gpusetup.bootstrap.record import write_whole

    try:
        write_whole(Path(out), f"{token}\n".encode(), 0o600)
    except OSError as error:
        raise BadInputError("GS-103", f"cannot write {out}: {os.strerror(error.errno or 0)}", path=out) from error
