"""The Python API gives the answers of the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup import api
from gpusetup.errors import BadInputError, NoStackError
from tests.property.test_command_line import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "programs.md"


def test_resolve_is_what_the_command_prints():
    _, out, _ = run(["resolve", "torch==2.6.*", "--gpu", "v100", "--os", "ubuntu22.04", "--format", "json"])
    found = api.resolve("torch==2.6.*", gpu=["v100"], os="ubuntu22.04").to_document()
    told = json.loads(out)
    told.pop("gpus")
    assert json.loads(json.dumps(found)) == told


def test_matrix_is_what_the_command_prints():
    _, out, _ = run(["matrix", "torch", "--driver", "550.54", "--format", "json"])
    assert json.loads(json.dumps(api.matrix("torch", driver="550.54"))) == json.loads(out)["rows"]


def test_why_not_is_empty_where_nothing_forbids():
    assert [rule.rule for rule in api.why_not("cuda==13.1.*", gpu=["v100"])] == ["requested", "toolkit-targets-gpu"]
    assert api.why_not("cuda==12.8.*", gpu="v100") == ()


def test_what_cannot_be_used_is_an_error():
    with pytest.raises(NoStackError):
        api.resolve("torch==2.6.0", gpu=["rtx 5090"])
    with pytest.raises(BadInputError):
        api.resolve("pandas")
    with pytest.raises(BadInputError):
        api.matrix("torch", driver="next tuesday")


def test_facts_of_a_captured_machine():
    host = api.facts(ROOT / "tests" / "hosts" / "ubuntu24.04-h200x2-keep" / "root")
    assert [gpu.compute_capability for gpu in host.gpus] == ["9.0", "9.0"]


def test_diagnose():
    (found,) = api.diagnose("NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.")
    assert found.fixes
    assert api.diagnose("the weather is fine") == ()


def test_the_page_runs():
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.splitlines()) >= 6


def test_the_page_shows_the_documents_that_there_are():
    (block,) = re.findall(
        r"^```console\n\$ gpusetup export schema\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    shown = [line.split() for line in block.splitlines() if line != "…" and "─" not in line]
    assert [words for line in run(["export", "schema"])[1].splitlines() if (words := line.split()) in shown] == shown
