"""`--newer`: releases that the matrix does not know yet, asked of an index and of NVIDIA's list as they answer."""

import json
from unittest.mock import Mock

import pytest

from gpusetup.bootstrap import web
from gpusetup.bootstrap.web import Unfetched
from gpusetup.cli import newer
from tests.cli.test_lookup_commands import document
from tests.stored import stored_rows

FILES = stored_rows("files-of-an-index.json")
DRIVERS = {"999": {"type": "new feature branch", "driver_info": [{"release_version": "999.10", "release_date": ""}]}}


@pytest.fixture
def asked(monkeypatch):
    """Publishers that answer as PyPI and NVIDIA do; what was asked of them."""
    found: list[str] = []

    def fetch(url, *, accept, **_):
        found.append(url)
        if url == newer._DRIVERS:
            return json.dumps(DRIVERS).encode()
        assert accept == "application/vnd.pypi.simple.v1+json"
        name = url.rstrip("/").rpartition("/")[2]
        if name not in FILES:
            raise Unfetched(f"404 Not Found for {url}")
        files = [{"filename": file, "upload-time": day, "yanked": yanked} for file, day, yanked in FILES[name]]
        return json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()

    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setattr(web, "fetch", fetch)
    return found


def test_nobody_is_asked_without_the_option_and_with_it_the_nearest_release_answers_marked(asked):
    code, told = document("resolve", "cudnn==9.99.1.4", "--gpu", "h100")
    assert (code, asked) == (4, [])
    assert "ask its publisher: the same command with --newer" in told["suggestions"]
    code, told = document("resolve", "cudnn==9.99.1.4", "--gpu", "h100", "--newer")
    assert (code, len(asked)) == (0, 2)
    marked = next(text for text in told["warnings"] if text.startswith("unconfirmed: "))
    assert "cudnn 9.99.1.4 of 2026-11-06 (nvidia-cudnn-cu13 on the package index)" in marked
    assert told["stack"]["cudnn"]["version"] in marked


def test_the_login_of_an_index_is_in_no_message(monkeypatch):
    absent = Unfetched("404 Not Found for https://me:secret-word@index.example/simple/torch/")
    for answer, said in (
        (b"<html>", "index.example"),
        (b'{"files": [1, {}]}', "does not list"),
        (absent, "index.example"),
    ):
        monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret-word@index.example/simple")
        monkeypatch.setattr(web, "fetch", Mock(side_effect=[answer]))
        code, told = document("resolve", "torch==99.0.0", "--newer")
        assert code == 4, "the answer of the matrix"
        assert said in told["suggestions"][-1]
        assert "secret-word" not in json.dumps(told)


@pytest.mark.parametrize("version", ["9.99.2.1", "9.99.3.0.dev7", "9.98.0"])
@pytest.mark.usefixtures("asked")
def test_what_was_withdrawn_is_a_preview_or_not_there_stays_unknown(version):
    code, told = document("resolve", f"cudnn=={version}", "--newer")
    assert code == 4
    assert "its newest release is 9.99.1.4 of 2026-11-06" in told["suggestions"][-1]


@pytest.mark.usefixtures("asked")
def test_the_table_tells_each_component_how_far_behind_the_matrix_is():
    code, told = document("matrix", "--newer")
    rows = {row["component"]: row for row in told["rows"]}
    assert code == 0
    assert rows["cudnn"]["publisher"] == "9.99.1.4"
    assert rows["cudnn"]["behind"] >= 0
    assert (rows["cupy"]["publisher"], rows["cupy"]["behind"]) == ("not reached", None)
    assert (rows["driver"]["publisher"], rows["driver"]["behind"]) == ("999.10", None)
    assert document("matrix", "torch", "--newer")[0] == 3
