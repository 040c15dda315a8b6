"""What a benchmark found: bounds of figures and of ratios."""

import pytest

from bench import __main__ as bench
from bench.found import Found, Row, records

FAST = Row(what="asking", value=90.0, unit="ms", plain=10.0, bound=10, of="ratio")
SLOW = Row(what="telling", value=120.0, unit="ms", plain=10.0, bound=10, of="ratio")
ALONE = Row(what="memory", value=30.0, unit="MB", bound=60)


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (FAST, True),
        (SLOW, False),
        (ALONE, True),
        (Row(what="reports", value=9_999, unit="a minute", bound=10_000, least=True), False),
        (Row(what="reports", value=10_001, unit="a minute", bound=10_000, least=True), True),
        (Row(what="no bound", value=1, unit="s"), None),
    ],
)
def test_a_bound_is_kept_or_missed(row, kept):
    assert row.kept is kept
    assert Found(rows=(row,)).missed is (kept is False)


def test_what_is_recorded_says_of_itself_what_its_benchmark_says():
    kept = {record.name: record.about for record in records()}
    assert kept
    assert {name: about for name, about in bench.found().items() if name in kept} == kept
