"""A stand-in for Ansible: a small program that writes events and misbehaves as told."""

import json
import os
import sys
from pathlib import Path

import pytest

from gpusetup.drive import playbook as playbook_module
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


@pytest.fixture
def ansible(tmp_path, monkeypatch):
    """ansible(program) → a session whose Ansible is this program; `session.said` is what it was called with."""

    def make(program: str) -> Session:
        script = tmp_path / "fake_ansible.py"
        script.write_text(HEAD + program)
        called = tmp_path / "argv.json"

        def argv(playbook, reach, **keywords):
            called.write_text(json.dumps([str(playbook), *map(str, keywords["inventories"])]))
            return [sys.executable, str(script)]

        monkeypatch.setattr(playbook_module, "playbook_argv", argv)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        return Session(new_run(tmp_path / "state"), Path(tmp_path), Reach(), environment)

    return make
