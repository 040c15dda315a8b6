"""Find the cause and the fix for an error message, a log or a sick host; changes nothing without --apply.

Without a message gpusetup examines this machine (or --root DIR, or every host of INVENTORY), stops at the first cause
and lists what it ruled out. With a project's pyproject.toml, uv.lock, requirements.txt or environment.yml it checks
whether the project fits this machine and its driver.

Exit code 0: answered, or healthy; 3: not recognised; 4: the project does not fit; 8: a host is sick. With --apply
also 5: refused; 7: failed part-way; 9: only shown, or a reboot is pending.

examples:
  gpusetup doctor 'CUDA error: no kernel image is available'
  gpusetup doctor Xid 79                 also: CVE-2025-23266, GS-324
  sudo dmesg | gpusetup doctor --text -
"""

from __future__ import annotations

import os
import select
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import doctor_hosts, options, output
from gpusetup.cli.requests import about_host, is_project, request_of, take_project
from gpusetup.doctor import text as texts
from gpusetup.doctor.other_trouble import names_gpu, routine
from gpusetup.errors import BadInputError, Exit, PreflightError, reason
from gpusetup.matrix.security import CVE, page, rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpusetup.doctor.logs import Log
    from gpusetup.model.diagnosis import Finding, NextStep

_INVENTORIES = (".ini", ".yml", ".yaml", ".toml")
_LOGS = (".log", ".txt", ".out", ".err", ".log.gz", ".xml")
_LARGE = 4
"""The size in MB from which the search takes seconds, and gpusetup says what it reads."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    message = options.add_inventory(parser)
    message.nargs, message.metavar = "*", "MESSAGE|INVENTORY"
    message.help = "a message in quotes, or anything that ansible-playbook -i takes; without it: this machine"
    group = parser.add_argument_group("what to examine")
    group.add_argument("--text", metavar="FILE", help="a log instead of a message; - reads standard input")
    group.add_argument("--root", metavar="DIR", help="a captured machine instead of a real one")
    group.add_argument("--bundle", metavar="FILE", help="also write a support bundle: a tar.gz without secrets")
    group.add_argument("--explain", metavar="CAUSE", help="explain a cause: what it is, how to confirm and fix it")
    doctor_hosts.add_apply(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Find the cause."""
    asked, inventory = _asked(arguments)
    project = inventory if inventory is not None and is_project(inventory) else None
    inventory = None if project else inventory
    arguments.inventory = inventory  # open_session reads this name
    if asked:
        options.refuse_beside(arguments, "a message", "it is about no host", "--limit", "--forks", "--user")
    chosen = [
        name
        for name, given in (
            ("a message", asked),
            ("--text", arguments.text is not None),
            ("--root", arguments.root is not None),
            ("an inventory", inventory),
            ("a project", project),
            ("--explain", arguments.explain is not None),
        )
        if given
    ]
    if len(chosen) > 1 and not (project and chosen == ["--root", "a project"]):
        raise BadInputError("GS-604", f"{' and '.join(chosen)} cannot be used together")
    if arguments.bundle and chosen and not arguments.root:
        raise BadInputError("GS-604", f"--bundle needs a machine and cannot be used with {chosen[0]}", path="--bundle")
    if arguments.apply:
        doctor_hosts.refuse_conflicts(arguments, [name for name in chosen if name != "an inventory"])
        from gpusetup.cli.session import names_of_gpus

        return doctor_hosts.apply(arguments, names_of_gpus())
    if arguments.explain is not None:
        return _explain(arguments)
    if asked or arguments.text is not None:
        return _message(arguments, asked)
    if project:
        return _project(arguments, project)
    code = doctor_hosts.diagnosed(arguments, inventory)
    if not chosen and _unread_input():
        output.warn("this is about the machine; to examine piped text: … | gpusetup doctor --text -")
    return code


def _asked(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """Return the message, or the inventory: an existing file, or a word that ends with a comma."""
    if not arguments.inventory:
        return "", None
    given, words = arguments.inventory[0], " ".join([*arguments.inventory, *arguments.ansible_arguments])
    if not words.strip():
        raise BadInputError(
            "GS-602", "the message is empty", hint="without a message, the doctor examines this machine"
        )
    if len(arguments.inventory) == 1 and (given == "-" or given.endswith(",") or os.path.exists(given)):  # noqa: PTH110 - takes names of any length
        if arguments.text is None and not is_project(given) and (given.endswith(_LOGS) or _is_log(given)):
            arguments.text = given
            return "", None
        return "", given
    if " " not in words and (given.endswith((*_INVENTORIES, *_LOGS)) or is_project(given)):
        raise BadInputError(
            "GS-602", f"no such file: {given}", path=given, hint="give an inventory or a log that exists: ls"
        )
    return words, None


def _is_log(given: str) -> bool:
    """Return whether standard input, a pipe, or a file without an inventory's ending is a log: `-`, `dmesg.gz`."""
    from gpusetup.doctor.logs import is_log

    path = Path(given)
    if given == "-" or path.is_fifo():
        return True
    return not given.endswith(_INVENTORIES) and path.is_file() and is_log(path)


def _explain(arguments: argparse.Namespace) -> Exit:
    """Print the page of a cause, of a short message (Xid 79), of an alert or of one of gpusetup's references."""
    from gpusetup.cli.output import explain
    from gpusetup.doctor.catalogue import explained
    from gpusetup.doctor.findings import diagnose_text
    from gpusetup.doctor.references import reference_in

    if reference := reference_in(arguments.explain):
        return _reference(arguments, reference)
    if (done := _alert(arguments, arguments.explain)) is not None:
        return done
    pages = explained()
    if arguments.explain not in pages and (found := diagnose_text(arguments.explain)):
        arguments.explain = found[0].cause
    return explain(arguments, pages, "cause", "GS-605")


def _unread_input() -> bool:
    """Return whether text was piped in, which only `--text -` reads; an idle pipe, such as ssh's, does not count."""
    try:
        piped = stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode)
        return piped and bool(select.select([sys.stdin], [], [], 0)[0]) and bool(os.read(sys.stdin.fileno(), 1))
    except (OSError, ValueError):  # closed, or a test's
        return False


def _message(arguments: argparse.Namespace, asked: str) -> Exit:
    from gpusetup.cli.doctor_hosts import guest_here
    from gpusetup.doctor.findings import diagnose_chunks, diagnose_text
    from gpusetup.doctor.logs import Log
    from gpusetup.doctor.questions import asks_for_versions
    from gpusetup.doctor.references import reference_in

    # A text gets the same answer as an argument and as a file.
    log = Log(iter((asked.encode("utf-8", "replace"),)) if asked else _chunks(arguments.text))
    short = log.short()
    if reference := reference_in(short):
        return _reference(arguments, reference)
    if (done := _alert(arguments, short)) is not None:
        return done
    if (cve := short.strip().upper()).startswith("CVE-") and len(cve.split()) == 1:
        return _vulnerability(arguments, cve)
    found = () if asks_for_versions(short) else diagnose_text(short) if short else diagnose_chunks(log.pieces())
    if found and (guest := guest_here()) is not None:
        from gpusetup.doctor.look import without_apply

        found = tuple(without_apply(finding, guest) for finding in found)
    if not found and log.reference:
        return _reference(arguments, log.reference)
    if not found and log.end.rstrip().endswith("</nvidia_smi_log>"):
        hint = "give its text: nvidia-smi -q | gpusetup doctor -"
        raise BadInputError("GS-602", "the doctor does not read the XML of nvidia-smi", path=arguments.text, hint=hint)
    if log.empty:
        name = "standard input" if arguments.text == "-" else arguments.text
        raise BadInputError(
            "GS-602", f"{name} is empty", path=name, hint="give a log with the message that you saw in it"
        )
    return _answer_text(arguments, found, log)


def _reference(arguments: argparse.Namespace, reference: str) -> Exit:
    from gpusetup.doctor.references import listed, nearest, page_of
    from gpusetup.doctor.text import reference_text
    from gpusetup.model.examined import DoctorReference

    entry = listed().get(reference)
    if entry is None:
        near = nearest(reference)
        raise BadInputError(
            "GS-605",
            f"no message of gpusetup has the reference {reference}",
            hint=f"did you mean {', '.join(near)}?" if near else "check its number",
        )
    document = DoctorReference(
        reference=reference, title=entry.title, meaning=entry.meaning, fix=entry.fix, page=page_of(reference)
    )
    return output.answer(arguments.format, document, reference_text(reference, entry), arguments.out)


def _alert(arguments: argparse.Namespace, text: str) -> Exit | None:
    """Explain the alert of `gpusetup export monitoring` with this name; None if there is none."""
    name = text.strip()
    if not name.isalnum() or not name.startswith(("Gpu", "Vgpu")):
        return None
    from gpusetup.monitoring.files import meaning_of

    found = meaning_of(name)
    return output.answer(arguments.format, found, found.page, arguments.out) if found is not None else None


def _vulnerability(arguments: argparse.Namespace, cve: str) -> Exit:
    """Explain a vulnerability: the affected and the fixed releases, and what to do."""
    from gpusetup.matrix.load import matrix
    from gpusetup.model.examined import DoctorVulnerability

    if not CVE.fullmatch(cve):
        raise BadInputError(
            "GS-606", f"{cve} is not the form of a CVE number", hint="it is CVE-YYYY-NNNN, as CVE-2025-23266"
        )
    known = matrix()
    text = page(known, cve)
    if not text:
        raise BadInputError("GS-606", f"the matrix of {known.security.date} has no record of {cve}", path=cve)
    document = DoctorVulnerability(cve=cve, rows=tuple(rows(known, cve)), page=text)
    return output.answer(arguments.format, document, text, arguments.out)


def _chunks(name: str) -> Iterator[bytes]:
    from gpusetup.doctor.logs import read_pieces

    if name == "-":
        yield from read_pieces(sys.stdin.buffer)
        return
    try:
        with Path(name).open("rb") as stream:
            if (megabytes := os.fstat(stream.fileno()).st_size >> 20) > _LARGE:
                output.say(f"reading {megabytes} MB of {name}")
            yield from read_pieces(stream)
    except (OSError, EOFError) as error:
        raise BadInputError(
            "GS-602", f"cannot read {name}: {reason(error)}", path=name, hint="give a log file, or - for standard input"
        ) from error


def _project(arguments: argparse.Namespace, path: str) -> Exit:
    """Print the stack for a project on this machine with its driver; raise NoStackError if none fits."""
    from argparse import Namespace

    from gpusetup.cli.resolve import stack_text
    from gpusetup.components.base import working_driver
    from gpusetup.matrix.load import matrix as load_matrix
    from gpusetup.plan.preflight import NO_GPU
    from gpusetup.resolve.api import resolve

    matrix, host = load_matrix(), doctor_hosts.machine(arguments.root).facts
    if not host.gpus and not host.virtualisation.wsl:
        raise PreflightError(
            "GS-607", f"{path} cannot be compared with this machine: {NO_GPU}", path=path,
            hint=f"name a machine: gpusetup resolve --from {path} --gpu h100 --driver 580.95.05",
        )  # fmt: skip
    empty: dict[str, object] = dict.fromkeys(("on", "os", "arch", "driver", "python"))
    empty |= dict.fromkeys(("allow_builds", "allow_vulnerable", "native", "forward"), False)
    wanted = Namespace(requirements=[], gpu=[], facts=path, **empty)
    take_project(wanted, matrix)
    wanted.gpu, wanted.os, wanted.arch, wanted.driver = [], None, None, working_driver(host)
    resolution = resolve(about_host(host, request_of(wanted, matrix), matrix), matrix)
    output.answer(arguments.format, resolution, lambda: stack_text(resolution, matrix, "text"), arguments.out)
    for warning in resolution.warnings:
        output.warn(warning)
    return Exit.DONE


def _answer_text(arguments: argparse.Namespace, found: tuple[Finding, ...], log: Log) -> Exit:
    """Print the findings of a text; without any, whether it is healthy, or else what it is about.

    It is healthy if its messages are routine, or if it is a log of a known kind without words of trouble.
    """
    from gpusetup.doctor.next_steps import after_symptoms, next_steps
    from gpusetup.doctor.questions import lookups, with_lookups
    from gpusetup.doctor.similar import similar

    shown = () if found else with_lookups(log.text)
    clean = not found and (routine(shown) or (log.quiet and log.known and not shown))
    if clean or routine(shown):
        shown = ()
    code = Exit.DONE if found or clean or shown else Exit.BAD_INPUT
    known = clean or shown or log.binary
    steps = after_symptoms(found) if found else () if known else next_steps(log.end)
    asked = lookups(log.text) if log.quiet and not (known or found or steps or log.lines) else ()
    alike = similar(log.end) if not (known or found or asked or (log.quiet and log.lines)) else ()
    if arguments.format == "json":
        from msgspec import UNSET

        from gpusetup.model.examined import DoctorText, OutsideTold

        document = DoctorText(
            ok=code == Exit.DONE,
            recognised=bool(found),
            clean=clean,
            findings=found,
            outside=tuple(OutsideTold(*one) for one in shown) if shown else UNSET,
            similar=alike or UNSET,
            next_steps=steps or UNSET,
            send=_not_known(log, (), asked, ()) if not (shown or found or clean) else UNSET,
        )
        said = output.json_text(document)
    elif shown:
        said = texts.outside_text(shown)
    elif found or clean:
        said = texts.CLEAN if clean else output.painted(texts.messages(found)) + texts.steps_text(steps)
    else:
        said = _not_known(log, steps, asked, alike)
    output.write_answer(said, arguments.out)
    return code


def _not_known(log: Log, steps: tuple[NextStep, ...], asked: tuple[str, ...], alike: tuple[str, ...]) -> str:
    if log.binary:
        return texts.NO_TEXT
    if log.quiet and log.lines and not steps:
        return texts.NO_LINE_KNOWN
    begin = texts.NO_WORD_OF_IT if log.text and not (steps or asked or names_gpu(log.text)) else ""
    begin = texts.A_QUESTION + texts.commands_text(asked) if asked else begin
    return texts.NOT_RECOGNISED + texts.similar_text(alike) + texts.steps_text(steps) + texts.TELL_US + begin
