"""Confidence is one of the three words; a derived value is never called the vendor's, and inferred ones say why."""

from tests.data.lint import holds, shipped
from tools.refresh.lints import LINTS


def test_shipped():
    assert LINTS["confidence"](shipped()) == []


def test_fixtures():
    holds(LINTS["confidence"], "confidence")
