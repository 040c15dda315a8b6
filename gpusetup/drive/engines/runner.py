"""The engine `runner`: each playbook is a job of ansible-runner, with the artifacts that AWX and its people know.

Each job has a private data folder below the run's `runner/`: artifacts/1/ with job_events, stdout, rc, status, command.
Passwords are the pipes that Ansible reads anyway; nothing secret is written, also not into events.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from gpusetup.drive.engines.base import Command
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from gpusetup.drive.engines.base import Play

__all__ = ["IDENT", "Runner"]

IDENT = "1"
"""Each job has a folder of its own, and is its first."""
_INSIDE = (
    "import sys; from gpusetup.drive.engines.under_runner import main; sys.exit(main(sys.stdin.buffer, sys.stdout))"
)


@dataclass(frozen=True)
class Runner:
    """ansible-runner in a process of its own, as a library, with ansible-core of our own interpreter."""

    name: ClassVar[str] = "runner"

    def __post_init__(self) -> None:
        if find_spec("ansible_runner") is None:
            raise BadInputError(
                "GS-417",
                "ansible-runner is not installed (an extra of gpusetup)",
                path="--engine",
                context=f"looked for by {sys.executable}",
                hint=f"{sys.executable} -m pip install 'ansible-runner>=2.4,<3'",
            )

    def command(self, play: Play, until_it_ends: ExitStack) -> Command:
        """Return the process that runs the job; what it could not clear away goes when it has ended."""
        folder = _folder(play)
        told = {
            "folder": str(folder),
            "playbook": play.playbook,
            "options": play.options,
            "passwords": play.passwords,
        }
        until_it_ends.callback(_settle, folder / "artifacts" / IDENT)
        return Command(
            argv=(sys.executable, "-c", _INSIDE),
            environment=play.environment,
            stdin=json.dumps(told).encode(),
        )


def _folder(play: Play) -> Path:
    """Make the job's private data folder; a playbook that a run has several times is counted."""
    jobs = play.run.path / "runner"
    jobs.mkdir(mode=0o700, exist_ok=True)
    folder = jobs / f"{len(list(jobs.iterdir())) + 1:03}-{play.label}"
    folder.mkdir(mode=0o700)
    return folder


def _settle(artifacts: Path) -> None:
    """Say how a job ended that was killed, and take away what it had no time for."""
    for left in (*artifacts.glob("job_events/*-partial.json*"), *artifacts.glob("job_events/*.tmp")):
        left.unlink(missing_ok=True)
    if artifacts.is_dir() and not (artifacts / "status").exists():
        (artifacts / "command").unlink(missing_ok=True)
        for name, text in (("status", "error"), ("rc", "254")):
            path = artifacts / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
    with suppress(OSError):
        shutil.rmtree(artifacts.parent / "fact_cache")
