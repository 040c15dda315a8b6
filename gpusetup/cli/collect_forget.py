"""Remove a host from a collector: its reports and its token.

With --keep-token only its reports go, and the next report counts, whatever its number.

examples:
  gpusetup fleet forget /srv/gpusetup gpu07
  gpusetup fleet forget /srv/gpusetup gpu07 --keep-token
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.cli.collect import database, put_on_record
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder")
    parser.add_argument("name", metavar="HOST", help="the host's name in its reports")
    parser.add_argument("--keep-token", action="store_true", help="remove only its reports")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> Exit:
    """Forget it."""
    from gpusetup.model.pull import HostForgotten
    from gpusetup.pull.offers import checked_name
    from gpusetup.pull.store import forget

    name = checked_name(arguments.name, "HOST")
    path = database(arguments.folder)
    put_on_record(
        path.parent, "token", "fleet forget", f"host {name}{'' if arguments.keep_token else ', with its token'}"
    )
    if not forget(path, name, keep_token=arguments.keep_token):
        raise BadInputError("GS-984", f"there is no host {name} here", path="HOST")
    if arguments.format == "json":
        output.write_answer(output.json_text(HostForgotten(name=name, token=not arguments.keep_token)), None)
    else:
        output.say(
            f"{name}: forgotten{'; its token is still valid' if arguments.keep_token else ', and its token ended'}"
        )
    return Exit.DONE
