"""Wherever a command is cut, the same command again does it all, and removal brings the host back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.modules.cuts import COMMANDS, Points, differences

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE, SEED = 12, 20251125


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Points:
    return Points(tmp_path, monkeypatch)


def test_every_command_has_points_and_removal_leaves_nothing(points: Points) -> None:
    for command in COMMANDS:
        assert sum(point.command == command for point in points.all) > 20
    older = list(differences(points.ends["apply"], points.ends["rollback"], ""))
    assert [text.partition(" ")[0] for text in older] == ["tree"] * len(older)
    assert all("opt/.gpusetup-" in text for text in older), "an environment stays beside the one that takes its place"
    assert points.ends["remove"] == points.untouched


def test_a_sample_of_all_points(points: Points) -> None:
    chosen = random.Random(SEED).sample(points.all, SAMPLE * len(COMMANDS))
    wrong = {point: found for point in chosen if (found := list(points.try_one(point)))}
    print(f"{len(points.all)} points, {len(chosen)} tried")
    assert wrong == {}
