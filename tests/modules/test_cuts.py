"""Wherever a command is cut, the same command again does it all, and removal brings the host back."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modules.cuts import COMMANDS, Points, differences
from tests.modules.cuts_beside import WORLDS

ROOT = Path(__file__).parents[2]
SAMPLE, SEED = 4, 20251125


@pytest.fixture(params=WORLDS, ids=lambda world: world.__name__)
def points(request, tmp_path, monkeypatch):
    return Points(tmp_path, monkeypatch, request.param)


def test_every_command_has_points_and_removal_leaves_nothing(points):
    for command in COMMANDS:
        assert sum(point.command == command for point in points.all) > 20
    older = list(differences(points.ends["apply"], points.ends["rollback"], ""))
    assert [text.partition(" ")[0] for text in older] == ["tree"] * len(older)
    assert all("opt/.gpusetup-" in text for text in older), "an environment stays beside the one that takes its place"
    assert points.ends["remove"] == points.untouched


def test_a_sample_of_all_points(points):
    chosen = random.Random(SEED).sample(points.all, SAMPLE * len(COMMANDS))
    assert {point: found for point in chosen if (found := list(points.try_one(point)))} == {}


def test_all_points_are_tried_by_a_program_of_their_own():
    load = [sys.executable, "-c", "import tests.lab.faults.__main__"]
    done = subprocess.run(load, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
