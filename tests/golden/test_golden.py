"""Whole explanations as people read them at 80 columns. `python -m tests.golden.test_golden --update` writes them anew.

A change of the data or of a sentence changes these files: read the difference before keeping it.
"""

import contextlib
import difflib
import io
import os
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from gpusetup.cli.main import main

FOLDER = Path(__file__).resolve().parent
COMMANDS = {
    "resolve-nothing-asked": "resolve",
    "resolve-torch-v100": "resolve torch cuda cudnn --gpu v100",
    "resolve-torch-build-rtx5090": "resolve torch==2.7.* nccl --gpu 'rtx 5090'",
    "resolve-torch-tensorflow": "resolve torch tensorflow --os ubuntu22.04",
    "resolve-torch-old-driver": "resolve torch==2.2.1 --driver 470.256.02",
    "resolve-gh200": "resolve torch cupy --gpu gh200 --os ubuntu24.04",
    "resolve-forward": "resolve cuda==13.4.* --gpu h100 --driver 570.211.01 --forward",
    "resolve-impossible-pair": "resolve torch --gpu v100 --gpu b200",
    "resolve-never-published": "resolve driver==535.154.02",
    "resolve-driver-too-old": "resolve 'cuda>=13' --driver 550.144.03",
    "resolve-markdown": "resolve cupy --gpu h200 --format md",
    "matrix-torch-v100": "matrix torch==2.6.* --gpu v100",
    "matrix-driver": "matrix --driver 535.154.05 --gpu a100",
    "why-cuda": "why cuda --gpu v100",
    "why-not-cuda": "why-not cuda=13.1 --gpu v100",
    "why-not-torch": "why-not torch=2.6.0 --gpu 'rtx 5090'",
}


def told(command):
    """Return what a command says, answer and warnings, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    environment = {name: text for name, text in os.environ.items() if name not in ("GPUSETUP_MATRIX", "COLUMNS")}
    with (
        patch.dict(os.environ, environment, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(shlex.split(command))
    aside = "".join(line + "\n" for line in err.getvalue().splitlines() if "days old" not in line)
    return f"$ gpusetup {command}\n{out.getvalue()}{'--- standard error' + chr(10) if aside else ''}{aside}--- exit {code}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_explanation(name):
    expected = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    found = told(COMMANDS[name])
    difference = difflib.unified_diff(expected.splitlines(), found.splitlines(), "kept", "now", lineterm="")
    assert found == expected, "\n" + "\n".join(difference)


@pytest.mark.parametrize("name", COMMANDS)
def test_answers_fit_80_columns(name):
    answer = told(COMMANDS[name]).partition("--- standard error")[0].splitlines()[1:]
    assert not [line for line in answer if len(line) > 80 and "https://" not in line and not line.startswith("|")]


def test_no_explanation_is_left_behind():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(COMMANDS)


if __name__ == "__main__":
    if "--update" not in sys.argv:
        sys.exit("say --update to write the explanations anew")
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for golden, line in COMMANDS.items():
        (FOLDER / f"{golden}.txt").write_text(told(line), encoding="utf-8")
    print(f"{len(COMMANDS)} explanations written to {FOLDER}")
