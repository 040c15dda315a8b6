"""People's own records beside the shipped ones."""

import json

from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve


def test_an_added_driver_is_one_more_and_is_chosen(tmp_path):
    document = {
        "schema": "gpusetup/matrix-driver/1",
        "sources": {"ours": {"title": "our own qualification"}},
        "versions": [{"version": "580.999.01", "branch": 580, "sources": ["ours"], "confidence": "vendor"}],
    }
    (tmp_path / "driver.more.json").write_text(json.dumps(document))
    shipped, ours = Matrix(), Matrix(tmp_path)
    assert len(ours.driver.versions) == len(shipped.driver.versions) + 1
    assert (ours.driver.branches, ours.digest != shipped.digest) == (shipped.driver.branches, True)
    stack = resolve(Request(driver="580.999.01"), ours).stack
    assert stack.driver is not None
    assert stack.driver.version == "580.999.01"
