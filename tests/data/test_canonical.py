"""A file is printed the one way that people and programs agree on, so a change shows only what changed."""

import pytest

from gpusetup.matrix.load import NAMES, canonical, load_file
from tests.data.lint import DATA, FIXTURES


def printed_so(name, path):
    return canonical(load_file(name, path)) == path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_shipped(name):
    assert printed_so(name, DATA / f"{name}.json"), "print it with gpusetup.matrix.load.canonical"


def test_fixtures():
    assert printed_so("vgpu", FIXTURES / "canonical.good.json")
    assert not printed_so("vgpu", FIXTURES / "canonical.bad.json")
