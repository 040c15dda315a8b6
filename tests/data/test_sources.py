"""Every record says where it is from, every source that is cited is there, and none is there for nothing."""

from tests.data.lint import holds, shipped
from tools.refresh.lints import LINTS


def test_shipped():
    assert LINTS["sources"](shipped()) == []


def test_fixtures():
    holds(LINTS["sources"], "sources")
