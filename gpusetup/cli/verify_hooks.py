"""`gpusetup fleet health --hooks`: the files by which Slurm and Kubernetes act on this machine's health.

On a machine that an apply changed they are part of its record, as timers are.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import output, timers, verify_quarantine
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["KINDS", "hooks"]

KINDS = ("slurm", "kubernetes", timers.SHOW, timers.OFF)
_NEXT = {
    "slurm": "next: the lines of {folder}/slurm.conf.example into slurm.conf on all nodes, then scontrol reconfigure\n",
    "kubernetes": (
        "next: kubectl apply -f {folder}/kubernetes.json; on each node, with KUBECONFIG of that account:\n"
        "  gpusetup fleet health --timer '*:0/5' --quarantine kubernetes\n"
    ),
}


def hooks(arguments: argparse.Namespace) -> Exit:
    """Write, show or remove the files."""
    from gpusetup.health.hooks import FOLDER, files

    for name in ("inventory", "quarantine", "timer"):
        if getattr(arguments, name) is not None:
            option = "an inventory" if name == "inventory" else f"--{name}"
            raise BadInputError("GS-512", f"{option} cannot be used with --hooks", path=option, hint="leave it out")
    folder = Path(FOLDER)
    if arguments.hooks in {timers.SHOW, timers.OFF}:
        names = sorted(name for kind in _NEXT for name in files(kind, ()))
        paths = [folder / name for name in names if (folder / name).exists()]
        if arguments.hooks == timers.OFF:
            _remove(paths)
        told = "".join(f"{path}\n" for path in paths)
        text = told if arguments.hooks == timers.SHOW else "".join(f"removed {path}\n" for path in paths)
        if arguments.hooks == timers.OFF and folder / "slurm-job" in paths:
            text += "next: remove their lines from slurm.conf, then scontrol reconfigure\n"
        output.write_answer(text or "no hooks\n", arguments.out)
        return Exit.DONE
    words = _words(arguments)
    texts = files(arguments.hooks, words)
    _write(folder, texts, shlex.join(["gpusetup", "fleet", "health", "--hooks", arguments.hooks, *words]))
    told = "".join(f"{folder / name}\n" for name in sorted(texts))
    output.write_answer(told + _NEXT[arguments.hooks].format(folder=folder), arguments.out)
    return Exit.DONE


def _words(arguments: argparse.Namespace) -> list[str]:
    words = ["--level", arguments.level, *verify_quarantine.repeated(arguments)]
    if arguments.lock is not None:
        words += ["--lock", str(Path(arguments.lock).absolute())]
    if arguments.gpus is not None:
        words += ["--gpus", str(arguments.gpus)]
    return words + (["--strict"] if arguments.strict else [])


def _write(folder: Path, texts: dict[str, str], again: str) -> None:
    try:
        ledger = timers.record(None)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path, mode = folder / name, 0o755 if text.startswith("#!") else 0o644
            if ledger is not None:
                ledger.write(str(path), text, mode)
                ledger.mend_by(str(path), again)
                continue
            partial = folder / f".{name}.new"
            partial.write_text(text, encoding="utf-8")
            partial.chmod(mode)
            partial.replace(path)
    except OSError as error:
        raise _refused(error, folder) from error


def _remove(paths: list[Path]) -> None:
    try:
        ledger = timers.record(None)
        for path in paths:
            if ledger is not None and str(path) in ledger.state["files"]:
                ledger.restore(str(path))
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(error, paths[0].parent) from error


def _refused(error: OSError, folder: Path) -> BadInputError:
    return BadInputError(
        "GS-517", f"cannot write {error.filename or folder}: {error.strerror}", path="--hooks",
        hint="run it as root on the node",
    )  # fmt: skip
