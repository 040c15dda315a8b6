"""Run `gpusetup` as a person does, from a test on lab hosts, and count what goes over the wire."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Call:
    time: float
    argv: str


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str
    seconds: float
    calls: tuple[Call, ...]
    """Executions of ssh and sftp."""

    def well(self) -> "Answer":
        """Return this answer; a command that did not end well fails the test with what it printed."""
        assert self.code == 0, self.out + self.err
        return self

    @property
    def operations(self) -> int:
        return len(self.calls)

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def hosts(self) -> dict[str, Any]:
        return self.document["hosts"]


def gpusetup(
    folder: Path,
    *words: str | Path,
    timeout: float = 1500,
    stdin: str | None = None,
    gate: Path | None = None,
    **environment: str,
) -> Answer:
    """Run it with its state in `folder`; with a gate each connection waits until its file there is taken away."""
    counted = _counter(folder, gate)
    log = folder / "operations"
    log.write_text("")
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GPUSETUP_STATE": str(folder / "state"),
        "ANSIBLE_SSH_EXECUTABLE": str(counted), **environment,
    }  # fmt: skip
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "gpusetup", *map(str, words)],
        cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=timeout, input=stdin, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    lines = (line.partition(" ") for line in log.read_text().splitlines())
    calls = tuple(Call(float(when), argv) for when, _, argv in lines)
    return Answer(done.returncode, done.stdout, done.stderr, seconds, calls)


def vault(path: Path, text: str, password: str) -> None:
    """Write variables that this password opens."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with tempfile.NamedTemporaryFile("w") as key:
        key.write(password)
        key.flush()
        argv = [sys.executable, "-m", "ansible", "vault", "encrypt", "--vault-password-file", key.name, str(path)]
        subprocess.run(argv, check=True, capture_output=True)


def apply(folder: Path, inventory: Path, *words: str | Path, **keywords: Any) -> Answer:
    return gpusetup(folder, "apply", inventory, "--format", "json", *words, **keywords)


def _counter(folder: Path, gate: Path | None) -> Path:
    script = folder / "counted-ssh"
    # The command itself may be of many lines; of the arguments the first one is kept, which names the host.
    waits = f'at={gate}/at-$$\n: >"$at"\nwhile [ -e "$at" ]; do sleep 0.02; done\n' if gate else ""
    script.write_text(
        f'#!/bin/bash\nwords="$*"\necho "$EPOCHREALTIME ${{words%%$\'\\n\'*}}" >>"{folder}/operations"\n{waits}exec ssh "$@"\n'
    )
    script.chmod(0o755)
    return script
