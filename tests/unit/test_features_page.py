"""The page of features: its count is right, what is there is shown somewhere, and no state is a word of its own."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tools import features

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/features.md"
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| what |")
]


def state(row):
    return row[1].rstrip(" |").partition(":")[0]


def test_every_row_is_counted():
    counted = Counter(map(state, ROWS))
    assert set(counted) == {"whole", "stand-in", "part", "no"}
    told = re.search(
        r"^(\d+) rows: (\d+) whole, (\d+) stand-in, (\d+) part, (\d+) no\.$", PAGE.read_text(), re.MULTILINE
    )
    assert told is not None
    assert [int(number) for number in told.groups()] == [
        len(ROWS), *(counted[name] for name in ("whole", "stand-in", "part", "no")),
    ]  # fmt: skip


def test_the_systems_of_each_row_are_those_of_its_tests():
    text = PAGE.read_text(encoding="utf-8")
    assert features.page(text, json.loads(features.EVIDENCE.read_text(encoding="utf-8"))) == text, (
        "python -m tools.features"
    )
    assert (
        features.systems(["tests/lab/test_roles_dnf.py", "tests/fixtures/observations/h200-x1-full.json"])
        == "an H200, EL 9, Fedora"
    )
    with pytest.raises(FileNotFoundError):
        features.systems(["tests/lab/test_gone.py"])


def test_what_is_there_is_shown_on_a_page():
    for row in ROWS:
        shown = re.findall(r"\]\(([^)#]+)", row[-1]) if state(row) != "no" else [PAGE.name]
        assert shown, row
        assert all((PAGE.parent / place).is_file() for place in shown), row


def test_what_is_part_says_what_is_missing():
    assert [row for row in ROWS if state(row) == "part" and not row[1].partition(": ")[2]] == []
