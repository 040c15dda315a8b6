"""Wheel variants: our answers against the reference validator, through its own loader."""

import copy
import json
from pathlib import Path

import msgspec
import pytest
from variantlib.api import get_variants_by_priority
from variantlib.plugins.loader import VARIANT_PROVIDER_CACHE_TABLE, EntryPointPluginLoader

from gpusetup.cli.main import main
from gpusetup.facts.variants import FACTS, Provider
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Facts
from gpusetup.resolve.variants import machine_of, ordered, supported
from tests.hosts.machines import machine

TESTS = Path(__file__).parents[2]
TOY = json.loads((TESTS / "fixtures/variants/toy.json").read_text())
HOSTS = {
    "ubuntu24.04-h200x8-keep": ["cuda13.0", "cuda12.8", "cuda12.6", "anygpu", "nogpu", "null"],
    "debian12-gtx1080ti-proprietary": ["cuda12only", "cuda12.6", "anygpu", "nogpu", "null"],
    "ubuntu22.04-t4-runfile": ["cuda12only", "cuda12.8", "cuda12.6", "anygpu", "nogpu", "null"],
    "ubuntu24.04-gtx1080ti-rtx5090-nostack": ["nogpu", "null"],
    "debian12-none-nothing": ["nogpu", "null"],
}


@pytest.fixture(params=HOSTS)
def host(request, tmp_path, monkeypatch):
    """A captured machine that stands for this one."""
    (tmp_path / "facts.json").write_bytes(msgspec.json.encode(Facts(hosts={"one": machine(request.param)})))
    monkeypatch.setenv(FACTS, str(tmp_path / "facts.json"))
    VARIANT_PROVIDER_CACHE_TABLE.clear()
    return str(request.param)


def test_the_reference_chooses_what_we_choose_on_each_machine(host, capsys):
    best = get_variants_by_priority(variants_json=copy.deepcopy(TOY))
    values = {name: found for name, found, _ in Provider.get_supported_configs()}
    assert [item.label for item in best] == ordered(TOY, TOY["variants"], values) == HOSTS[host]
    with EntryPointPluginLoader() as loader:  # checks names, values and types
        seen = loader.get_supported_configs().get("nvidia")
        assert {item.name: item.values for item in seen.configs} == values if values else seen is None
    code = main(["matrix", "variants", "--format", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert (code, {row["property"].split(" :: ")[1]: row["values"] for row in rows}) == (0 if values else 4, values)


def test_hosts_of_no_kind_are_an_error_and_no_answer(tmp_path, monkeypatch, capsys):
    (tmp_path / "none.json").write_bytes(msgspec.json.encode(Facts(hosts={})))
    monkeypatch.setenv(FACTS, str(tmp_path / "none.json"))
    assert (main(["matrix", "variants"]), "0 kinds of hosts" in capsys.readouterr().err) == (3, True)


def test_an_h100_answers_what_it_answered_when_it_was_asked():
    seen = json.loads((TESTS / "fixtures/variants/h100-x1.json").read_text())
    assert supported(machine_of(matrix(), [seen["gpu"]], seen["driver"])) == seen["values"]


@pytest.mark.parametrize(
    ("gpus", "driver", "first", "code"),
    [
        (["h100"], "565.57.01", ["12.7", "12.6"], ["90_real", "90_virtual"]),
        (["h100"], "999.10", None, ["90_real", "90_virtual"]),
        (["rtx 4090", "t4"], "580.95.05", ["13.0", "13"], [*(f"8{one}_real" for one in range(9, -1, -1)), "80_virtual"]),
        (["b200"], "535.154.05", [], []), (["v100"], "590.44.01", [], []), ([], "580.95.05", [], []), (["h100"], None, [], []),
    ],
)  # fmt: skip
def test_the_matrix_knows_the_cuda_of_a_driver_and_whether_it_drives_the_gpu(gpus, driver, first, code):
    values = supported(machine_of(matrix(), gpus, driver))
    lower, upper = values.get("cuda_version_lower_bound", []), values.get("cuda_version_upper_bound", [])
    newest = [item.cuda for item in matrix().driver.branches][-1]
    assert lower[:2] == first if first is not None else lower[0] == newest
    assert values.get("sm_arch", []) == code
    assert not set(lower) & set(upper)
    assert not lower or (len(lower) + len(upper), lower[-1], upper[0]) == (110, "11", "15.20")
