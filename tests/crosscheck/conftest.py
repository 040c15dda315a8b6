from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix


@pytest.fixture(scope="session")
def matrix(shipped: Matrix) -> Matrix:
    return shipped
