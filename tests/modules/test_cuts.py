"""Wherever a command is cut, the same command again does it all, and removal brings the host back."""

import random

import pytest

import tests.lab.faults.__main__  # noqa: F401 - it tries all points, and must load
from tests.modules.cuts import COMMANDS, NO_ANSWER, Points, differences
from tests.modules.cuts_beside import WORLDS

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
    chance, looks = random.Random(SEED), [point for point in points.all if point.way in NO_ANSWER]
    chosen = chance.sample(points.all, SAMPLE * len(COMMANDS)) + chance.sample(looks, SAMPLE)
    assert {point: found for point in chosen if (found := list(points.try_one(point)))} == {}
