"""Show who changed which host, when and from where; --verify detects changed or removed lines.

gpusetup logs every change of a host before it begins, and its outcome. DIR is a collector's folder (tokens and
offers) or another folder of runs; without it: your own runs.

examples:
  gpusetup fleet audit                            the newest first
  gpusetup fleet audit --host gpu07
  gpusetup fleet audit --verify                   exit 8 when a line was changed or removed
  gpusetup fleet audit --verify --head 412:6f1d…  compared with a head kept elsewhere
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.drive.inventory import unfolded
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.model.audit import AuditLine
    from gpusetup_fleet.model.fleet import Audit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", nargs="?", metavar="DIR", help="a collector's folder; without it: your own runs")
    parser.add_argument("--host", metavar="NAME", help="only what was done to this host")
    parser.add_argument("--run", metavar="ID", default="", help="only this run; the start of its ID is enough")
    parser.add_argument("--last", type=int, default=20, metavar="N", help="the newest N lines; default: %(default)s")
    parser.add_argument("--verify", action="store_true", help="check the log; exit 8 when it was changed")
    parser.add_argument("--head", metavar="NUMBER:DIGEST", help="with --verify: a head kept elsewhere")
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Read the log, check it and print it."""
    from gpusetup.drive.audit import FILE, read
    from gpusetup.drive.rundir import state_home
    from gpusetup_fleet.model.fleet import Audit

    if arguments.last < 1:
        raise BadInputError("GS-942", f"--last must be 1 or more, not {arguments.last}", path="--last")
    home = Path(arguments.folder) if arguments.folder else state_home(os.environ)
    if arguments.folder and not (home / FILE).exists():
        raise BadInputError("GS-942", f"there is no audit log in {home}", path="DIR")
    found = read(home, arguments.head or "")
    wanted = tuple(line for line in found.lines if _wanted(line, arguments))[-arguments.last :]
    if not wanted and not found.troubles and (arguments.host or arguments.run):
        raise _nothing_of(arguments, found.lines)
    audit = Audit(
        ok=not found.troubles, path=str(home / FILE), head=found.head, lines=wanted, troubles=found.troubles,
        notes=found.notes,
    )  # fmt: skip
    output.answer(arguments.format, audit, _text(audit, proves=arguments.verify), arguments.out)
    return Exit.VERIFY_FAILED if arguments.verify and not audit.ok else Exit.DONE


def _nothing_of(arguments: argparse.Namespace, lines: tuple[AuditLine, ...]) -> BadInputError:
    import difflib

    option, asked = ("--host", arguments.host) if arguments.host else ("--run", arguments.run)
    if arguments.host:
        known = dict.fromkeys(name for line in lines for group in line.groups for name in unfolded(group.hosts))
    else:
        known = dict.fromkeys(line.run for line in lines)
    near = difflib.get_close_matches(asked, known, n=3)
    return BadInputError(
        "GS-942", f"the audit log has nothing of {asked}", path=option,
        hint=f"did you mean {', '.join(near)}?" if near else "gpusetup fleet audit shows what the log has",
    )  # fmt: skip


def _wanted(line: AuditLine, arguments: argparse.Namespace) -> bool:
    if not line.run.startswith(arguments.run):
        return False
    return not arguments.host or any(arguments.host in unfolded(group.hosts) for group in line.groups)


def _text(audit: Audit, *, proves: bool) -> str:
    lines = []
    for line in reversed(audit.lines):
        person = " as ".join(dict.fromkeys(filter(None, (line.who.login or line.who.sudo, line.who.user))))
        place = line.who.machine + (f" from {line.who.came_from}" if line.who.came_from else "")
        about = [text for text in (line.inventory, line.run, line.note) if text]
        lines.append(
            f"{line.number}  {line.time}  {line.command} {line.event}  {person} on {place}  {', '.join(about)}"
        )
        lines += [f"    {group.hosts}: {group.what}" for group in line.groups]
    lines += [f"note: {text}" for text in audit.notes]
    lines += [f"TAMPERED WITH: {text}" for text in audit.troubles]
    if proves and audit.ok:
        lines.append(f"whole; its head is {audit.head or 'nothing yet'}")
    return "\n".join(lines) or "nothing was changed from here yet"
