"""The project's size against its limits: a figure above one is told, and limits only fall by the tool."""

import json

import pytest

from tools import house


@pytest.fixture
def limits(tmp_path, monkeypatch):
    """Two figures, and a file with their limits."""
    monkeypatch.setattr(house, "figures", lambda: {"modules": 10, "commands": 20})

    def written(modules, commands):
        path = tmp_path / "house.json"
        bounds = {"modules": {"limit": modules, "goal": 1}, "commands": {"limit": commands, "goal": 1}}
        path.write_text(json.dumps(bounds))
        return path

    return written


def test_a_figure_above_its_limit_is_told(limits, capsys):
    assert house.main([], limits(9, 20)) == 9
    out = capsys.readouterr().out
    assert "+1 too many" in out
    assert out.count("too many") == 1
    assert house.main([], limits(10, 20)) == 0


def test_limits_fall_and_never_rise(limits):
    path = limits(9, 25)
    assert house.main(["--lower"], path) == 9
    lowered = {name: told["limit"] for name, told in json.loads(path.read_text()).items()}
    assert lowered == {"modules": 9, "commands": 20}
