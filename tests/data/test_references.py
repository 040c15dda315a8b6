"""What one record names, another record is: branches, drivers, CUDA versions, libraries, distributions, keys."""

from gpusetup.matrix.lints import LINTS
from tests.data.lint import holds, shipped


def test_shipped() -> None:
    assert LINTS["references"](shipped()) == []


def test_fixtures() -> None:
    holds(LINTS["references"], "references")
