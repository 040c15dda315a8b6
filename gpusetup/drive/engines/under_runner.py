"""In the process of the engine `runner`: one job, by ansible-runner's own classes, and what it may not do by itself.

It would switch off the check of host keys, kill Ansible at once where it is asked to stop, and write down whatever
Ansible tells, the whole environment with it. Here host keys are checked, Ansible hears of a Ctrl-C first, and what is
written holds no secret.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpusetup.drive.engines.runner import IDENT
from gpusetup.drive.parent import ENVIRONMENT as PARENT
from gpusetup.drive.parent import die_with_parent
from gpusetup.drive.secrets import ENVIRONMENT as SECRETS
from gpusetup.drive.secrets import secrets_pipe, tell_secrets

if TYPE_CHECKING:
    from ansible_runner.config.runner import RunnerConfig

    from gpusetup.drive.secrets import Secrets

__all__ = ["main"]

_GRACE = 8.0
"""Shorter than that of who started us: the job is to say itself that it was cancelled."""
_STOPPED = 130
_SETTINGS = {
    "suppress_output_file": True,  # it would be written before we have seen it
    "suppress_ansible_output": True,
    "pexpect_timeout": 1,
}
_NO_ANSWER = {r"(?i)pass(?:word|phrase)[^\n]*: ?\Z": ""}
"""Nobody sits at the terminal that Ansible gets: a question ends at once, not at the deadline."""
_TOLD = re.compile(r"(?:ANSIBLE|GPUSETUP|RUNNER|AWX)_(?!.*(?:TOKEN|PASS|SECRET|KEY_DATA)).*")
"""What of the environment a job's record names."""


def main(told: IO[bytes], out: IO[str]) -> int:
    """Run the job that `told` describes; its output goes to `out`. Return Ansible's exit code."""
    job = Job(json.load(told), out)
    signal.signal(signal.SIGINT, job.stop)
    signal.signal(signal.SIGTERM, job.stop)
    if not die_with_parent():
        return _STOPPED
    with secrets_pipe(job.folder, job.passwords) as (pipe, secrets):
        return job.run(pipe, secrets)


class Job:
    """One playbook as ansible-runner sees it."""

    def __init__(self, told: dict[str, Any], out: IO[str]) -> None:
        self.folder = Path(told["folder"])
        self.playbook, self.options, self.passwords = told["playbook"], told["options"], told["passwords"]
        self.out = out
        self.stopped = 0.0
        self.above = os.environ.get(SECRETS)

    def stop(self, *_: object) -> None:
        """Ask Ansible to stop, as a terminal would."""
        self.stopped = self.stopped or time.monotonic()
        for pid in _children():
            os.kill(pid, signal.SIGINT)

    def run(self, pipe: Path, secrets: Secrets) -> int:
        """Run it to its end."""
        from ansible_runner.runner import Runner

        config = self.config(pipe)
        artifacts = Path(config.artifact_dir)
        descriptor = os.open(artifacts / "stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as stdout:

            def event(data: dict[str, Any]) -> bool:
                if new := secrets.listen():
                    tell_secrets(self.above, new)
                clean = _clean(data, secrets)
                data.clear()
                data.update(clean)
                text = data.get("stdout") or ""
                if text or data.get("event") == "verbose":
                    for place in (stdout, self.out):
                        place.write(f"{text}\n")
                        place.flush()
                return True

            def status(_told: dict[str, Any], *, runner_config: RunnerConfig) -> None:
                if runner.status == "running":
                    self._write(f"artifacts/{IDENT}/command", _command(runner_config))
                elif runner.status == "failed" and self.stopped:
                    runner.status = "canceled"

            runner = Runner(config, event_handler=event, status_handler=status, cancel_callback=self.overdue)
            runner.run()
        return int(runner.rc)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")

    def overdue(self) -> bool:
        """Tell whether Ansible was asked to stop and did not."""
        return bool(self.stopped) and time.monotonic() - self.stopped > _GRACE

    def config(self, pipe: Path) -> RunnerConfig:
        """Return what ansible-runner is told, and what it made of that."""
        from ansible_runner.config.runner import RunnerConfig

        self._write("env/settings", json.dumps(_SETTINGS))  # it takes them from there alone
        config = RunnerConfig(
            private_data_dir=str(self.folder),
            project_dir=str(Path.cwd()),  # relative names on the command line, and the ansible.cfg in force
            ident=IDENT,
            playbook=self.playbook,
            cmdline=shlex.join(self.options),
            passwords=dict(_NO_ANSWER),
            fact_cache_type="none",
            quiet=True,
        )
        config.prepare()
        # Not a program that happens to be on the PATH.
        config.command = [sys.executable, "-m", "ansible", "playbook", *config.command[1:]]
        if "ANSIBLE_HOST_KEY_CHECKING" not in os.environ:
            del config.env["ANSIBLE_HOST_KEY_CHECKING"]
        config.env |= {PARENT: str(os.getpid()), SECRETS: str(pipe)}
        return config


def _clean(value: Any, secrets: Secrets) -> Any:
    """Return an event without what is secret in it."""
    if isinstance(value, str):
        return secrets.without(value)
    if isinstance(value, dict):
        return {key: _clean(item, secrets) for key, item in value.items()}
    return [_clean(item, secrets) for item in value] if isinstance(value, list) else value


def _command(config: RunnerConfig) -> str:
    """Return what was started, with Ansible's part of the environment: the rest is the person's."""
    told = {name: value for name, value in config.env.items() if _TOLD.fullmatch(name)}
    return json.dumps({"command": config.command, "cwd": config.cwd, "env": told})


def _children() -> list[int]:
    """Return whom this process started."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]
