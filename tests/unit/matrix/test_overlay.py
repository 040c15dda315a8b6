"""People's own records beside the shipped ones."""

import json
from pathlib import Path

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve


def _overlay(folder: Path, **record: object) -> Matrix:
    document = {
        "schema": "gpusetup/matrix-driver/1",
        "sources": {"ours": {"title": "our own qualification"}},
        "versions": [{"version": "580.999.01", "branch": 580, "sources": ["ours"], "confidence": "vendor", **record}],
    }
    (folder / "driver.more.json").write_text(json.dumps(document))
    return Matrix(folder)


def test_an_added_driver_is_one_more_and_is_chosen(tmp_path):
    shipped, ours = Matrix(), _overlay(tmp_path)
    assert len(ours.driver.versions) == len(shipped.driver.versions) + 1
    assert ours.driver.branches == shipped.driver.branches
    stack = resolve(Request(driver="580.999.01"), ours).stack
    assert stack.driver is not None
    assert stack.driver.version == "580.999.01"


def test_additions_change_the_digest(tmp_path):
    assert _overlay(tmp_path).digest != Matrix().digest


def test_a_wrong_field_is_named_by_its_place_in_the_addition(tmp_path):
    with pytest.raises(BadInputError) as caught:
        assert _overlay(tmp_path, brunch=580).driver
    assert caught.value.path.endswith("driver.more.json:$.versions[0]")


def test_an_addition_that_is_no_document_is_bad_input(tmp_path):
    (tmp_path / "driver.more.json").write_text("[]")
    with pytest.raises(BadInputError):
        assert Matrix(tmp_path).driver


def test_an_addition_names_only_sources_that_are_there(tmp_path):
    with pytest.raises(BadInputError, match="nowhere"):
        assert _overlay(tmp_path, sources=["nowhere"]).driver
