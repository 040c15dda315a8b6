"""A stand-in for Ansible: a small program that writes events and misbehaves as told."""

import os
import sys
from pathlib import Path

import pytest

from gpusetup.drive import playbook
from gpusetup.drive.argv import Reach
from gpusetup.drive.playbook import Session
from gpusetup.drive.rundir import new_run

HEAD = """
import json, os, signal, sys, time
events = open(os.environ["GPUSETUP_EVENTS"], "a", buffering=1)
def tell(event, **fields):
    events.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\\n")
def hosts(*names, forks=25):
    tell("hosts", play="x", forks=forks, hosts={name: {"connection": {}, "variables": {}, "groups": []} for name in names})
tell("task", task="1", name="Install", action="gpu_packages", role="gpu_packages")
"""


class NoServer:
    def start(self, *_what):
        return None


@pytest.fixture
def ansible(tmp_path, monkeypatch):
    """ansible(program) → a session that runs this program in Ansible's place."""

    def make(program):
        script = tmp_path / "fake_ansible.py"
        script.write_text(HEAD + program)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        monkeypatch.setattr(playbook, "ANSIBLE", (sys.executable, str(script)))
        return Session(new_run(tmp_path / "state"), Path(tmp_path), Reach(), environment, server=NoServer())

    return make
