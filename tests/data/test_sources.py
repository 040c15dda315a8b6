"""Every record says where it is from, every source that is cited is there, and none is there for nothing."""

from gpusetup.matrix.lints import LINTS
from tests.data.lint import holds, shipped


def test_shipped() -> None:
    assert LINTS["sources"](shipped()) == []


def test_fixtures() -> None:
    holds(LINTS["sources"], "sources")
