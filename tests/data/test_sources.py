"""Every record says where it is from, every source that is cited is there, and none is there for nothing."""

from tests.data.lint import holds, shipped
from tools.refresh.lints import LINTS


def test_shipped() -> None:
    assert LINTS["sources"](shipped()) == []


def test_fixtures() -> None:
    holds(LINTS["sources"], "sources")
