"""The loader: what it refuses and how it says so, people's own records beside the shipped ones, the digest."""

import json
import os
import shutil
from pathlib import Path

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix import load
from gpusetup.matrix.load import Matrix, load_file
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve
from tests.refusals import refused

DATA = Path(load.__file__).parent / "data"


def _copy(tmp_path: Path, name: str) -> tuple[Path, dict]:
    path = tmp_path / f"{name}.json"
    shutil.copy(DATA / path.name, path)
    return path, json.loads(path.read_text())


def test_a_file_is_read_when_it_is_asked_for(tmp_path):
    (tmp_path / "cuda.json").write_text("not JSON")
    loaded = Matrix(tmp_path)
    assert loaded.driver.branches  # the broken cuda.json does not matter yet
    with pytest.raises(BadInputError):
        _ = loaded.cuda


@pytest.mark.parametrize(
    ("reference", "name", "change", "where"),
    [
        ("GS-201", "cuda", lambda d: d["releases"][3].update(flavour="vanilla"), "$.releases[3]"),
        ("GS-201", "driver", lambda d: d["versions"][0].update(version="five"), "$.versions[0].version"),
        ("GS-201", "driver", lambda d: d["branches"][0].pop("kind"), "$.branches[0]"),
        ("GS-201", "driver", lambda d: d.update(date="yesterday"), "$.date"),
        ("GS-206", "os", lambda d: d["systems"][2].update(sources=["gone"]), "$.systems[2].sources[0]"),
        ("GS-206", "driver", lambda d: d["versions"][0].update(branch=411), "$.versions[0].branch"),
        ("GS-206", "cuda", lambda d: d["releases"][1].update(driver_branch=599), "$.releases[1].driver_branch"),
        ("GS-206", "torch", lambda d: d["builds"][0].update(cuda="12.7"), "$.builds[0].cuda"),
    ],
)
def test_a_wrong_value_field_or_reference_names_its_path(tmp_path, reference, name, change, where):
    path, document = _copy(tmp_path, name)
    change(document)
    path.write_text(json.dumps(document))
    with refused(BadInputError, reference) as raised:
        getattr(Matrix(tmp_path), name)
    assert raised.value.path == f"{path}:{where}"


@pytest.mark.parametrize(
    ("content", "reference"),
    [
        (b"{", "GS-201"), (b"null", "GS-201"), (b'{"schema": "\xff\xfe"}', "GS-201"), ("a named pipe", "GS-201"),
        ((DATA / "vgpu.json").read_bytes().replace(b"-vgpu/1", b"-vgpu/7"), "GS-202"), ("missing", "GS-203"),
    ],
    ids=["cut", "null", "bytes", "pipe", "another schema", "missing"],
)  # fmt: skip
def test_what_is_no_document(tmp_path, content, reference):
    path = tmp_path / "vgpu.json"
    if content == "a named pipe":
        os.mkfifo(path)
    elif content != "missing":
        path.write_bytes(content)
    with refused(BadInputError, reference, path=str(path)):
        load_file("vgpu", path)


@pytest.mark.parametrize("place", ["gone", "."])
def test_an_overlay_that_is_no_folder_or_an_empty_one(place, tmp_path):
    with refused(BadInputError, "GS-204"):
        Matrix(tmp_path / place)


def test_the_digest_is_that_of_the_data(tmp_path):
    shipped = Matrix().digest
    assert shipped == Matrix().digest
    path, document = _copy(tmp_path, "vgpu")
    assert Matrix(tmp_path).digest == shipped, "the same bytes at another place are the same data"
    document["branches"] = []
    path.write_text(json.dumps(document))
    assert Matrix(tmp_path).digest != shipped


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
    assert (ours.driver.branches, ours.digest != shipped.digest) == (shipped.driver.branches, True)
    stack = resolve(Request(driver="580.999.01"), ours).stack
    assert stack.driver is not None
    assert stack.driver.version == "580.999.01"


@pytest.mark.parametrize(
    ("record", "field", "said"),
    [({"brunch": 580}, "path", "driver.more.json:$.versions[0]"), ({"sources": ["nowhere"]}, "message", "nowhere"), (None, "path", "driver.more")],
)  # fmt: skip
def test_a_wrong_addition_is_named_by_its_place(tmp_path, record, field, said):
    laid_over = _overlay(tmp_path, **record or {})
    if record is None:
        (tmp_path / "driver.more.json").write_text("[]")
    with refused(BadInputError, **{field: said}):
        assert laid_over.driver
