"""`gpusetup fleet health --timer`: the same question now and then, for Prometheus too; a GPU in use is not measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import output, timers, verify_quarantine
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.report.model import Report

__all__ = ["timed", "write_textfile"]

FOLDERS = (
    "/var/lib/node_exporter/textfile_collector",
    "/var/lib/prometheus/node-exporter",
    "/var/lib/node_exporter/textfile",
)
"""Where node_exporters read textfiles: gpusetup's own, Debian's package, what its documentation shows."""
_LIBRARIES = (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"))


def timed(arguments: argparse.Namespace) -> Exit:
    """Install, show or remove the timer of this question."""
    if arguments.timer not in {timers.OFF, timers.SHOW}:
        verify_quarantine.check_commands(arguments)
    text, code = timers.answer(arguments, task_of(arguments), os.environ)
    output.write_answer(text, arguments.out)
    return code


def task_of(arguments: argparse.Namespace) -> timers.Task:
    """Return what the timer runs: the question as it was asked, idle-aware whether asked or not."""
    level = arguments.level
    words = ["--level", level, "--when-idle", *(["--strict"] if arguments.strict else [])]
    words += verify_quarantine.repeated(arguments)
    for option, value in (
        ("--budget", f"{arguments.budget:g}" if arguments.budget else None),
        ("--minutes", f"{arguments.minutes:g}" if level == "stress" else None),
        ("--python", arguments.python),
        ("--cuda-home", arguments.cuda_home),
        ("--gpus", arguments.gpus),
        ("--lock", arguments.lock),
        ("--baseline", arguments.baseline),
        ("--textfile", _textfile_folder(arguments)),
    ):
        if value is not None:
            files = option in {"--lock", "--baseline", "--textfile"}
            words += [option, str(Path(value).absolute()) if files else str(value)]
    return timers.Task(
        command="fleet health",
        does=f"verify {{what}}, level {level}",
        kind="" if level == "quick" else level,
        words=tuple(words),
        codes="# Exit 8, a check failed, is a failed unit; 9 says that an apply was changing the host.\n"
        "SuccessExitStatus=9\n",
        environment=_LIBRARIES,
        longest="1h" if level != "stress" else f"{60 + int(arguments.minutes)}min",
    )


def _textfile_folder(arguments: argparse.Namespace) -> str | None:
    if arguments.textfile is not None or arguments.timer in {timers.OFF, timers.SHOW}:
        return str(arguments.textfile) if arguments.textfile is not None else None
    return next((folder for folder in FOLDERS if os.access(folder, os.W_OK)), None)


def write_textfile(folder: Path, report: Report, inventory: str | None) -> None:
    """Write the report for node_exporter in one step: what it reads is whole, and of one run."""
    from gpusetup.report.model import POSTPONED
    from gpusetup.report.prometheus import to_prometheus

    if all(host.state == POSTPONED for host in report.hosts):
        return  # the last answer stands, and grows old
    name = "gpusetup-verify" + (f"-{Path(inventory).name}" if inventory is not None else "")
    # Files that do not end in .prom are not read.
    partial, target = folder / f".{name}.part", folder / f"{name}.prom"
    try:
        partial.write_text(to_prometheus(report), encoding="utf-8")
        partial.chmod(0o644)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise BadInputError(
            "GS-513",
            f"cannot write {target}: {error.strerror}",
            path="--textfile",
            hint="name the folder that node_exporter's --collector.textfile.directory names",
        ) from error
