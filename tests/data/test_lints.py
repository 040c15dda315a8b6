"""What the lints ask of the shipped data and of rows that come from elsewhere, each against a good and a bad fixture."""

import pytest

from tests.data.lint import holds
from tools.refresh.lints import LINTS


@pytest.mark.parametrize("name", LINTS)
def test_lint(name):
    holds(LINTS[name], name)
