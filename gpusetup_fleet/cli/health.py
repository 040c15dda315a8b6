"""Verify hosts regularly; take bad machines out of service and return good ones.

--timer installs a systemd timer. --quarantine drains a bad machine in Slurm or Kubernetes and returns it after good
verifications in a row; --on-bad and --on-good run your commands. --hooks writes the files that Slurm and Kubernetes
call. Without --timer and --hooks it verifies once, and acts. Without INVENTORY: this machine. Exit code 8 when a
check failed.

examples:
  gpusetup fleet health --timer hourly
  gpusetup fleet health --timer 'Sun 04:00' --level full
  gpusetup fleet health --quarantine slurm --hooks slurm
  gpusetup fleet health --timer '*:0/5' --on-bad '/usr/local/bin/page {node} {reason}'
"""

import argparse
import os
import shlex
from pathlib import Path

from gpusetup.cli import options, output, timers, verify
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError, Exit
from gpusetup_fleet.cli import verify_quarantine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    group = parser.add_argument_group("schedule")
    timers.add_argument(group)
    verify_quarantine.add_arguments(parser.add_argument_group("out of service and back"))
    parser.add_argument_group("files for schedulers").add_argument(
        "--hooks", choices=("slurm", "kubernetes", timers.OFF),
        help="write what Slurm and Kubernetes call, with these options; never: remove it",
    )  # fmt: skip
    verify.add_checks(parser, level="quick")
    options.add_output(parser, formats=verify.FORMATS)
    parser.set_defaults(**verify.ONCE)


def run(arguments: argparse.Namespace) -> Exit:
    """Install or remove the timer or the hooks; else verify once and act."""
    verify_quarantine.check(arguments)
    verify.check(arguments)
    if arguments.hooks is not None:
        return hooks(arguments)
    if arguments.timer is not None:
        return timed(arguments)
    service = verify_quarantine.service_of(arguments)
    if arguments.quarantine == "slurm-job":
        return verify_quarantine.around_a_job(arguments, lambda: verify.judged(arguments, service=service)[0])
    return verify.verified(arguments, service)


FOLDERS = (
    "/var/lib/node_exporter/textfile_collector",
    "/var/lib/prometheus/node-exporter",
    "/var/lib/node_exporter/textfile",
)
"""Textfile folders of node_exporter: gpusetup's, that of Debian's package, and that of its documentation."""
_LIBRARIES = (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"))


def timed(arguments: argparse.Namespace) -> Exit:
    """Install or remove the timer for these arguments."""
    if arguments.timer != timers.OFF:
        verify_quarantine.check_commands(arguments)
    return timers.answer(arguments, task_of(arguments), os.environ)


def task_of(arguments: argparse.Namespace) -> timers.Task:
    """Return what the timer runs: the same verification, always with --when-idle."""
    level = arguments.level
    arguments.when_idle = True
    if arguments.timer != timers.OFF:
        found = (folder for folder in FOLDERS if os.access(folder, os.W_OK))
        arguments.textfile = arguments.textfile or next(found, None)
    return timers.Task(
        does=f"verify {{what}}, level {level}",
        kind="" if level == "quick" else level,
        codes="# Exit 8, a check failed, is a failed unit; 9 says that an apply was changing the host.\n"
        "SuccessExitStatus=9\n",
        environment=_LIBRARIES,
        longest="1h" if level != "stress" else f"{60 + int(arguments.minutes)}min",
    )


_NEXT = {
    "slurm": "next: the lines of {folder}/slurm.conf.example into slurm.conf on all nodes, then scontrol reconfigure\n",
    "kubernetes": (
        "next: kubectl apply -f {folder}/kubernetes.json; on each node, with KUBECONFIG of that account:\n"
        "  gpusetup fleet health --timer '*:0/5' --quarantine kubernetes\n"
    ),
}


def hooks(arguments: argparse.Namespace) -> Exit:
    """Write or remove the files that schedulers call."""
    from gpusetup_fleet.health.schedulers import FOLDER, hook_files

    if arguments.format != "text":
        raise options.not_together("--hooks", f"--format {arguments.format}", "it lists files, one a line")
    for name in ("inventory", "quarantine", "timer"):
        if getattr(arguments, name) is not None:
            option = "an inventory" if name == "inventory" else f"--{name}"
            raise BadInputError("GS-512", f"{option} cannot be used with --hooks", path=option)
    folder = Path(FOLDER)
    if arguments.hooks == timers.OFF:
        names = sorted(name for kind in _NEXT for name in hook_files(kind, ()))
        paths = [folder / name for name in names if (folder / name).exists()]
        _remove_hooks(paths)
        text = "".join(f"removed {path}\n" for path in paths)
        if folder / "slurm-job" in paths:
            text += "next: remove their lines from slurm.conf, then scontrol reconfigure\n"
        output.write_answer(text or "no hooks\n", arguments.out)
        return Exit.DONE
    words = timers.typed(arguments)
    texts = hook_files(arguments.hooks, words)
    _write_hooks(folder, texts, shlex.join(["gpusetup", "fleet", "health", "--hooks", arguments.hooks, *words]))
    told = "".join(f"{folder / name}\n" for name in sorted(texts))
    output.write_answer(told + _NEXT[arguments.hooks].format(folder=folder), arguments.out)
    return Exit.DONE


def _write_hooks(folder: Path, texts: dict[str, str], again: str) -> None:
    try:
        ledger = timers.record(None)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path, mode = folder / name, 0o755 if text.startswith("#!") else 0o644
            if ledger is not None:
                ledger.write(str(path), text, mode)
                ledger.mend_by(str(path), again)
                continue
            write_whole(path, text.encode(), mode)
    except OSError as error:
        raise _refused(error, folder) from error


def _remove_hooks(paths: list[Path]) -> None:
    try:
        ledger = timers.record(None)
        for path in paths:
            if ledger is not None and str(path) in ledger.state["files"]:
                ledger.restore(str(path))
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(error, paths[0].parent) from error


def _refused(error: OSError, folder: Path) -> BadInputError:
    return BadInputError("GS-517", f"cannot write {error.filename or folder}: {error.strerror}", path="--hooks")
