"""gpusetup's own references, clean logs, and the numbers in the names of libraries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.references import reference_in, told
from tests.unit.doctor.score import score

ROOT = Path(__file__).resolve().parents[3]


def doctor(*arguments, given=""):
    return subprocess.run(
        [sys.executable, "-m", "gpusetup", "doctor", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def used():
    files = [path for folder in ("gpusetup", "plugins") for path in (ROOT / folder).rglob("*.py")]
    files.append(ROOT / "gpusetup/bootstrap/instance/first-stage")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return sorted(set(re.findall(r"[\"'](GS-\d{3})[\"']", text)))


@pytest.mark.parametrize("reference", used())
def test_every_reference_is_known(reference):
    assert told(reference), "write the list anew: python tools/references.py"


def test_no_reference_is_known_that_nothing_says():
    listed = json.loads((ROOT / "gpusetup/doctor/data/references.json").read_text(encoding="utf-8"))["references"]
    assert set(listed) == set(used()), "write the list anew: python tools/references.py"


def test_the_doctor_knows_a_reference():
    answer = doctor("GS-324")
    assert answer.returncode == 0
    assert ".run installer" in answer.stdout
    assert "--replace" in answer.stdout
    assert reference_in(" [gs-324] ") == "GS-324"
    assert reference_in("error GS-324 and more") == ""


def test_a_reference_that_does_not_exist():
    answer = doctor("GS-999")
    assert answer.returncode == 3
    assert "GS-999" in answer.stderr


def test_a_clean_log_is_healthy():
    answer = doctor("--text", "-", given="epoch 1 loss 0.3\nepoch 2 loss 0.2\n")
    assert answer.returncode == 0
    assert answer.stdout.startswith("healthy")


def test_a_log_with_an_error_that_nobody_knows_is_not_called_healthy():
    answer = doctor("--text", "-", given="epoch 1\nfrobnication failed: 42\n")
    assert answer.returncode == 3
    assert answer.stdout.startswith("not recognised")


@pytest.mark.parametrize(
    ("library", "said", "command", "never"),
    [
        ("libcudnn.so.8", "cuDNN 8", "nvidia-cudnn-cu12==8.9.7.29", "==9.*"),
        ("libcudnn.so.9", "cuDNN 9", "nvidia-cudnn-cu12==9.*", "==8."),
        ("libcusolver.so.11", "comes with CUDA 12", "gpusetup_cuda=12.*", "nvidia-nccl"),
        ("libnccl.so.2", "every CUDA major", "nvidia-nccl-cu12", "cupy"),
        ("libcudart.so.12", "belongs to CUDA 12", "gpusetup_cuda=12.*", "nvidia-nccl"),
    ],
)
def test_the_number_of_a_library(library, said, command, never):
    (found,) = diagnose_text(f"{library}: cannot open shared object file")
    commands = " ".join(line for fix in found.fixes for line in fix.commands)
    assert said in " ".join(found.details)
    assert command in commands
    assert never not in commands


def test_the_open_messages_stay_named():
    found = score("public_open")
    assert found.right >= 44, found.missed
