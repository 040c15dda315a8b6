"""What CONTRIBUTING tells newcomers is done, on a copy: the records go where it says, and the commands say what it shows."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^## A (\w+), in five minutes\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"to `(\w+)` in.*?`(gpusetup/[\w/]+\.json)`", re.DOTALL)
BLOCK = re.compile(r"^ +```(\w+)\n(.*?)^ +```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    for name in (
        "gpusetup",
        "plugins",
        "playbooks",
        "roles",
        ".collections",
        "tools",
        "tests/data",
        "tests/unit/doctor",
        "tests/fixtures/doctor",
    ):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for name in ("tests/__init__.py", "tests/conftest.py", "pyproject.toml", "galaxy.yml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def _run(line, folder):
    program, *words = shlex.split(line)
    start = [sys.executable] if program == "python" else [sys.executable, "-m", program]
    environment = {**os.environ, "PYTHONPATH": str(folder), "GPUSETUP_CACHE": str(folder / "cache")}
    answer = subprocess.run(
        [*start, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert answer.returncode == 0, f"{line}\n{answer.stdout}{answer.stderr}"
    return answer.stdout


def test_there_is_one_for_a_gpu_a_driver_and_a_message():
    assert [title for title, _ in STEPS] == ["GPU", "driver", "message"]


@pytest.mark.parametrize("text", [text for _, text in STEPS], ids=[title for title, _ in STEPS])
def test_the_steps_lead_where_they_say(text, copy):
    field, file = PLACE.search(text).groups()
    blocks = dict(BLOCK.findall(text))
    path = copy / file
    document = json.loads(path.read_text(encoding="utf-8"))
    document[field].append(json.loads(blocks["json"]))
    path.write_text(json.dumps(document), encoding="utf-8")
    said = None
    for line in map(str.strip, blocks["console"].splitlines()):
        if line.startswith("$ "):
            said = _run(line.removeprefix("$ "), copy)
        else:
            assert line in said
