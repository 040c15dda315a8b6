"""Code that a host keeps between tasks, through Ansible itself: tasks stay small and answer the same."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.modules import gpu_shared_code
from ansible_collections.gpusetup.stack.plugins.plugin_utils import shared_code

from bench import modules as sizes
from gpusetup.content import collections_path
from tests.stored import stored


def test_each_module_is_below_its_weight(tmp_path):
    packed = sizes.archives(tmp_path)
    assert {name: size for name in sizes.modules() if (size := sizes.sent(packed, name)) > sizes.KIB_BOUND} == {}


PLAY = stored("shared_code_play.txt")


@pytest.mark.parametrize("pipelining", ["0", "1"])
def test_tasks_answer_the_same_with_kept_code_and_without(tmp_path, pipelining):
    (tmp_path / "play.yml").write_text(PLAY.format(wrong="gpusetup-no-such", state=tmp_path / "state"))
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(collections_path()),
        "ANSIBLE_PIPELINING": pipelining,
    }  # fmt: skip
    argv = [sys.executable, "-m", "ansible", "playbook", "-v", "-i", "localhost,", "-c", "local", "play.yml"]
    argv += ["-e", f"ansible_python_interpreter={sys.executable}"]
    started = Path(gpu_shared_code.FOLDER, shared_code.DIGEST, "base/ansible/module_utils/basic.py")
    for turn in range(2 + int(pipelining)):
        if damaged := turn == 2 and os.geteuid() == 0:
            started.write_text("(")
            shutil.rmtree(started.parent / "__pycache__", ignore_errors=True)
        run = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert "ok=3" in run.stdout, run.stdout
        assert "failed=0" in run.stdout
        assert '"missing"' not in run.stdout
    assert not damaged or started.read_text() != "(", "with pipelining Ansible starts it, and it is asked for anew"
    shutil.rmtree(started.parents[3], ignore_errors=True)
