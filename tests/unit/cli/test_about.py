"""`gpusetup --version --verbose`: the same as text and as a document, and how this gpusetup came here."""

import json

import jsonschema
import pytest

from gpusetup import __version__
from gpusetup.cli import start
from gpusetup.cli.export import schema_of
from gpusetup.cli.main import main
from gpusetup.matrix.load import matrix


def document(says, *argv):
    found: dict[str, object] = json.loads(says(0, "--version", *argv))
    jsonschema.validate(found, schema_of("version"))
    return found


def test_the_document_says_what_decides_the_answers(capsys, says):
    found = document(capsys, "--verbose", "--format", "json")
    assert found["version"] == __version__
    assert found["install"] == "checkout"
    assert found["matrix"]["digest"] == matrix().digest
    assert found == document(capsys, "--format=json")
    text = says(0, "version", "--verbose")
    assert f"gpusetup {__version__}, checkout: {found['place']}" in text
    assert found["platform"] in text
    assert all(name in text for name in found["libraries"])


def test_what_is_laid_over_is_named_file_by_file(capsys, says, monkeypatch, tmp_path):
    (tmp_path / "gpus.more.json").write_text('{"schema": "gpusetup/matrix-gpus/1", "gpus": []}')
    monkeypatch.setenv("GPUSETUP_MATRIX", str(tmp_path))
    overlays = document(capsys, "--format", "json")["overlays"]
    assert overlays[0] == {"setting": "GPUSETUP_MATRIX", "place": str(tmp_path), "files": ["gpus.more.json"]}
    assert f"GPUSETUP_MATRIX={tmp_path}: gpus.more.json" in says(0, "--version", "--verbose")


def test_a_setting_that_leads_nowhere_is_an_error_in_words(capsys, says, monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSETUP_MATRIX", str(tmp_path / "away"))
    for words in ((), ("--version", "--verbose")):
        assert "GPUSETUP_MATRIX names" in says(3, *words)
    assert main(["--version", "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["reference"] == "GS-204"


@pytest.mark.parametrize(
    ("folder", "mark", "text", "kind"),
    [
        ("pipx/venvs/gpusetup", "pipx_metadata.json", "{}", "pipx"),
        ("uv/tools/gpusetup", "uv-receipt.toml", "", "uv"),
        ("cache/uv/archive-v0/x", "pyvenv.cfg", "home = /usr/bin\nuv = 0.9.1\n", "uv"),
        (".cache/gpusetup/single-0123-3.11", "pyvenv.cfg", "home = /usr/bin\n", "single file"),
        ("env", "pyvenv.cfg", "home = /usr/bin\n", "virtual environment"),
    ],
)
def test_each_way_to_install_is_known_by_what_it_leaves(folder, mark, text, kind, tmp_path, monkeypatch):
    prefix = tmp_path / folder
    prefix.mkdir(parents=True)
    (prefix / mark).write_text(text)
    monkeypatch.setattr(start.sys, "prefix", str(prefix))
    monkeypatch.setattr(start.sys, "base_prefix", "/usr")
    assert start._installation(prefix, prefix / "lib/python3.11/site-packages") == kind
