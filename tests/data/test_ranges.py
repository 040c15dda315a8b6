"""The lower end of a range is not above its upper end, and lists of CUDA versions and GPU targets go upwards."""

from tests.data.lint import holds, shipped
from tools.refresh.lints import LINTS


def test_shipped():
    assert LINTS["ranges"](shipped()) == []


def test_fixtures():
    holds(LINTS["ranges"], "ranges")
