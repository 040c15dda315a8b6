"""Cut in the middle, by Ctrl-C or for good: it says what is where, and the same command goes on to the end."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.lab.applying import REPOSITORY, apply
from tests.lab.process import until


def start(folder, inventory):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GPUSETUP_STATE": str(folder / "state")}
    argv = [sys.executable, "-m", "gpusetup", "apply", str(inventory), "--verify", "never", "--format", "json"]
    return subprocess.Popen(argv, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(folder, action, deadline=180):

    def begun():
        lines = [line for path in folder.glob("state/runs/*/events.jsonl") for line in path.read_text().splitlines()]
        seen = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        tasks = {event["task"] for event in seen if event["event"] == "task" and event["action"] == action}
        return any(event["event"] in {"begin", "retry"} and event["task"] in tasks for event in seen)

    until(begun, f"a task of {action}", deadline)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_same_command_resumes(lab, wishes, how):
    host, inventory = lab.one(wishes, flavour="ubuntu2404-like", machine="t4")
    first = start(lab.folder, inventory)
    wait_for(lab.folder, "gpu_packages")
    first.send_signal(how)
    out, err = first.communicate(timeout=90)
    if how is not signal.SIGKILL:
        assert first.returncode == 130, err
        outcome = json.loads(out)["hosts"][host.name]
        assert outcome["state"] == "interrupted"
        assert outcome["failed_at"]
    again = apply(lab.folder, inventory, "--verify", "never").well()
    assert again.hosts[host.name]["state"] == "done"
    assert "nvidia-dkms-580-open" in host.ssh("dpkg-query", "-W").stdout
    assert host.ssh("dpkg", "--audit").stdout == ""
    third = apply(lab.folder, inventory, "--verify", "never")
    assert third.hosts[host.name]["state"] == "unchanged", third.out
