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
    """Return where `seen` lacks or contradicts `expected`."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        return [
            line
            for key, value in expected.items()
            for line in (
                [f"{path}.{key}: missing"] if key not in seen else differences(value, seen[key], f"{path}.{key}")
            )
        ]
    if isinstance(expected, list) and isinstance(seen, (list, tuple)):
        if len(expected) != len(seen):
            return [f"{path}: {len(seen)} items, not {len(expected)}"]
        return [
            line
            for index, pair in enumerate(zip(expected, seen, strict=True))
            for line in differences(*pair, f"{path}[{index}]")
        ]
    return [] if expected == seen else [f"{path}: {seen!r}, not {expected!r}"]


def test_every_folder_is_a_case():
    folders = {path for path in HERE.iterdir() if (path / "root").is_dir()}
    assert folders == set(HOSTS)
    assert len(HOSTS) >= 18


@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_facts(folder):
    expected = json.loads((folder / "expected.json").read_text())
    host = captured(folder / "root", matrix_lookup(matrix()))
    assert differences(expected["facts"], msgspec.to_builtins(host)) == []
    assert host.simulated is False


@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_every_gpu_is_a_product_of_the_matrix(folder):
    for gpu in captured(folder / "root", matrix_lookup(matrix())).gpus:
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
    if "conflict" in expected:
        assert code == 4
        assert sorted(cause["rule"] for cause in answer["conflict"]) == expected["conflict"]
    else:
        assert code == 0
        assert differences(expected["stack"], answer["stack"]) == []


def test_the_comparison_itself_can_fail():
    assert differences({"a": 1}, {"a": 2}) == ["$.a: 2, not 1"]
    assert differences({"a": [1, 2]}, {"a": [1]}) == ["$.a: 1 items, not 2"]
    assert differences({"a": {"b": None}}, {"a": {}}) == ["$.a.b: missing"]
