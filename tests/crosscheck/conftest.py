import pytest


@pytest.fixture(scope="session")
def matrix(shipped):
    return shipped
