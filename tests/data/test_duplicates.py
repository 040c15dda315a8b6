"""No record is there twice, and a rule's name belongs to one rule of all files."""

from tests.data.lint import holds, shipped
from tools.refresh.lints import LINTS


def test_shipped():
    assert LINTS["duplicates"](shipped()) == []


def test_fixtures():
    holds(LINTS["duplicates"], "duplicates")
