"""A job as AWX runs it: ansible-runner's private data folder, an inventory script, extra variables, a project."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.content import collections_path


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "artifacts/1"
        self.events = [json.loads(path.read_text()) for path in sorted((self.folder / "job_events").glob("*.json"))]
        self.stdout = (self.folder / "stdout").read_text()
        self.status = (self.folder / "status").read_text()
        ends = [event["event_data"] for event in self.events if event["event"] == "playbook_on_stats"]
        self.stats = ends[-1] if ends else {}
        self.artifacts: dict[str, Any] = self.stats.get("artifact_data", {})

    def hosts(self) -> dict[str, str]:
        """Return what AWX's summary of hosts says: failed, changed or ok."""
        return {
            name: "failed" if name in self.stats["failures"] else "changed" if name in self.stats["changed"] else "ok"
            for name in self.stats["processed"]
        }

    def told(self) -> dict[str, str]:
        """Return the line that each host's own task says."""
        return {
            event["event_data"]["host"]: event["event_data"]["res"]["msg"]
            for event in self.events
            if event["event"] in {"runner_on_ok", "runner_on_failed"} and event["event_data"]["task"] == "Verdict"
        }


def inventory_script(path: Path, names: list[str], variables: Mapping[str, Any]) -> None:
    document = {
        "all": {"hosts": names, "vars": dict(variables)},
        "_meta": {"hostvars": {name: {"remote_tower_enabled": "true"} for name in names}},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env python3\nprint({json.dumps(document)!r})\n")
    path.chmod(0o700)


def prepare(
    folder: Path,
    project: Path,
    *,
    number: int,
    answers: Mapping[str, Any] = {},
    cmdline: str = "-u root --forks 10",
    settings: Mapping[str, str] = {},
    passwords: Mapping[str, str] = {},
) -> None:
    """Fill a private data folder, which has its inventory already."""
    for name in ("artifacts", "project"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(project, folder / "project")
    (folder / "env").mkdir(exist_ok=True)
    for name, document in (
        ("extravars", {"awx_job_id": number, "tower_job_id": number, **answers}),
        ("envvars", {"JOB_ID": str(number), **settings}),
        ("passwords", passwords),
    ):
        (folder / "env" / name).write_text(json.dumps(document))
    (folder / "env/cmdline").write_text(cmdline)


def run_job(folder: Path, project: Path, playbook: str, **how: Any) -> Job:
    prepare(folder, project, settings={"ANSIBLE_COLLECTIONS_PATH": str(collections_path())}, **how)
    argv = [sys.executable, "-m", "ansible_runner", "run", str(folder), "-p", playbook, "--ident", "1", "--quiet"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder)}
    subprocess.run(argv, env=environment, check=False, capture_output=True, timeout=500)
    return Job(folder)
