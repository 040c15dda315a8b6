"""What one record names, another record is: branches, drivers, CUDA versions, libraries, distributions, keys."""

from tests.data.lint import holds, shipped
from tools.refresh.lints import LINTS


def test_shipped():
    assert LINTS["references"](shipped()) == []


def test_fixtures():
    holds(LINTS["references"], "references")
