"""`lock --hashes` where no index answers: the direct pins, and in text, JSON and exit code that they are no more."""

import json
from unittest.mock import Mock

import pytest

from gpusetup.bootstrap import hashes
from gpusetup.cli.lock import load_lock
from gpusetup.cli.main import main
from gpusetup.errors import UnreachableError

ASKED = ["lock", "cupy", "--gpu", "h100", "--os", "ubuntu22.04", "--hashes"]


@pytest.fixture(autouse=True)
def _no_index(monkeypatch):
    refusal = UnreachableError("GS-770", "the package index does not list them", context="Connection\n  refused")
    monkeypatch.setattr(hashes, "hashes_of", Mock(side_effect=refusal))


def test_the_answer_is_the_direct_pins_and_says_so(capsys, tmp_path):
    assert main(ASKED) == 6
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert any(line.startswith("cupy-cuda") for line in document["pip"]["wheels"])
    assert document["hashes"] is None
    assert document["without_hashes"] == "the package index does not list them: Connection refused"
    assert "only the direct pins" in told.err

    kept = tmp_path / "gpu.lock.json"
    assert main([*ASKED, "--out", str(kept)]) == 6
    assert load_lock(str(kept)).without_hashes


def test_a_requirements_file_says_it_itself(capsys):
    assert main([*ASKED, "--pip"]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("# only the direct pins") for line in lines)
    assert not any("--hash" in line for line in lines)
