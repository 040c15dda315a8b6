"""Run `gpusetup` as a person does, from a test on lab hosts, and count what goes over the wire."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    operations: int
    """Executions of ssh and sftp."""

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def hosts(self) -> dict[str, Any]:
        return self.document["hosts"]


def gpusetup(
    folder: Path, *words: str | Path, timeout: float = 1500, stdin: str | None = None, **environment: str
) -> Answer:
    """Run it with its state in `folder`."""
    counted = _counter(folder)
    log = folder / "operations"
    log.write_text("")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GPUSETUP_STATE": str(folder / "state"),
        "ANSIBLE_SSH_EXECUTABLE": str(counted),
        **environment,
    }
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "gpusetup", *map(str, words)],
        cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=timeout, input=stdin, check=False,
    )  # fmt: skip
    return Answer(
        done.returncode, done.stdout, done.stderr, time.monotonic() - started, len(log.read_text().splitlines())
    )


def apply(folder: Path, inventory: Path, *words: str | Path, **keywords: Any) -> Answer:
    return gpusetup(folder, "apply", inventory, "--format", "json", *words, **keywords)


def _counter(folder: Path) -> Path:
    script = folder / "counted-ssh"
    script.write_text(f'#!/bin/sh\necho x >>"{folder}/operations"\nexec ssh "$@"\n')
    script.chmod(0o755)
    return script
