"""Fixtures for tests on virtual machines."""

from pathlib import Path

import pytest

from tests.lab import machine as outer
from tests.lab.repository import build
from tests.vm.machine import prepare

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("vm")


@pytest.fixture(scope="session")
def vm_repositories():
    """The stand-in package repositories; skips with the reason where no virtual machine can be made."""
    reason = outer.why_not()
    if reason:
        pytest.skip(reason)
    prepare()
    return build.ready()
