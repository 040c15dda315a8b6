"""Captured machines: what the probe says of each, compared with what was expected of it.

A folder is <os>-<gpu>-<expected answer>: `root/` stands in for the machine, `expected.json` holds under `facts` the part
of the facts that must be there, under `stack` the part of the resolved stack, under `conflict` the rules that forbid one.
"""

import json
from pathlib import Path

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.facts.collect import captured, matrix_lookup
from gpusetup.matrix.load import matrix

HERE = Path(__file__).parent
HOSTS = sorted(path.parent for path in HERE.glob("*/expected.json"))


def differences(expected, seen, path="$"):
    """Yield where `seen` lacks or contradicts `expected`."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key, value in expected.items():
            yield from [f"{path}.{key}: missing"] if key not in seen else differences(value, seen[key], f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(seen, (list, tuple)) and len(expected) == len(seen):
        for index, pair in enumerate(zip(expected, seen, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif isinstance(expected, list) and isinstance(seen, (list, tuple)):
        yield f"{path}: {len(seen)} items, not {len(expected)}"
    elif expected != seen:
        yield f"{path}: {seen!r}, not {expected!r}"


def test_every_folder_is_a_case():
    folders = {path for path in HERE.iterdir() if (path / "root").is_dir()}
    assert folders == set(HOSTS)
    assert len(HOSTS) >= 18


@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_facts_and_every_gpu_is_a_product_of_the_matrix(folder):
    expected = json.loads((folder / "expected.json").read_text())
    host = captured(folder / "root", matrix_lookup(matrix()))
    assert list(differences(expected["facts"], msgspec.to_builtins(host))) == []
    assert host.simulated is False
    for gpu in host.gpus:
        assert None not in (gpu.name, gpu.arch, gpu.compute_capability), gpu.pci_id


@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_stack(folder, tmp_path, capsys):
    expected = json.loads((folder / "expected.json").read_text())
    if "stack" not in expected and "conflict" not in expected:
        assert captured(folder / "root").gpus == (), "a machine with a GPU has a stack or a reason"
        return
    facts = tmp_path / "facts.json"
    assert main(["facts", "--root", str(folder / "root"), "--format", "json", "--out", str(facts)]) == 0
    code = main(["resolve", "--from", str(facts), "--format", "json"])
    (answer,) = json.loads(capsys.readouterr().out)["classes"].values()
    assert code == (4 if "conflict" in expected else 0)
    if "conflict" in expected:
        assert sorted(cause["rule"] for cause in answer["conflict"]) == expected["conflict"]
    else:
        assert list(differences(expected["stack"], answer["stack"])) == []


def test_the_comparison_itself_can_fail():
    wrong = ({"a": 1}, {"a": 2}), ({"a": [1, 2]}, {"a": [1]}), ({"a": {"b": None}}, {"a": {}})
    told = ["$.a: 2, not 1", "$.a: 1 items, not 2", "$.a.b: missing"]
    assert [line for pair in wrong for line in differences(*pair)] == told
