"""The key that signs what the tests publish."""

import pytest

from gpusetup.supply.signing import signer


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return signer("", tmp_path_factory.mktemp("k"))
