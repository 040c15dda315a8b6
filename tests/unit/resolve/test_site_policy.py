"""A site's policy: each key against each command, and what is wrong with its table."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from gpusetup.cli.main import main
from gpusetup.drive.events import HostProgress
from gpusetup.facts import fleet
from gpusetup.model.facts import Cuda, Facts, LoadedModule, Toolkit
from gpusetup.model.request import Policy
from gpusetup.resolve.policy import _ALLOWS, stricter
from tests.hosts.machines import HOSTS, machine
from tests.stored import stored_rows

OLD = "550.144.03"
MISMATCH = HOSTS / "ubuntu22.04-a100-mismatch/root"
KEYS = {
    "newest_driver_branch = 535": "R550 is newer than R535",
    'oldest_driver = "570.86.15"': "it is older than 570.86.15",
    'forbid_end_of_life = ["driver"]': "the support of R550 ended on 2025-04-17",
    "forbid_cvss_from = 7": "550.163.01 ends what is known",
}


def host(driver: str = OLD, *toolkits: str, name: str = "ubuntu22.04-a100-mismatch") -> Any:
    facts: Any = machine(name)
    loaded = LoadedModule(version=driver, flavour="open")
    there = replace(facts.driver, version=driver, library=driver, module=driver, loaded=loaded, mismatch=False)
    found = [Toolkit(version=text, path=f"/usr/local/cuda-{text[:4]}", nvcc=True) for text in toolkits]
    return replace(facts, driver=there, cuda=Cuda(toolkits=tuple(found)))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An inventory of one host beside a gpusetup.toml, in the current folder."""

    def make(text: str, facts: Any = None) -> str:
        (tmp_path / "gpusetup.toml").write_text(text, encoding="utf-8")
        (tmp_path / "hosts.ini").write_text("a\n", encoding="utf-8")
        looked = Mock(facts=Facts(hosts={"a": facts or host()}), **{"run.track.hosts": {"a": HostProgress("a")}})
        monkeypatch.setattr(fleet, "look", lambda *_, **__: looked)
        monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
        monkeypatch.chdir(tmp_path)
        return str(tmp_path / "hosts.ini")

    return make


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("command", ["resolve", "plan", "apply", "drift"])
def test_a_breach_is_refused_with_its_line_and_a_command(site, capsys, command, key):
    inventory = site(f'driver = "=={OLD}"\n\n[policy]\n{key}\n')
    words = [f"driver=={OLD}", "--gpu", "a100"] if command == "resolve" else [inventory]
    assert main([command, *words, "--format", "json"]) == 5
    text = capsys.readouterr().out
    name, value = key.split(" = ")
    mend = f"gpusetup apply {inventory} --limit a" if command == "drift" else "gpusetup resolve driver --gpu "
    why = KEYS[key] if command == "drift" else f"driver=={OLD} was asked for"
    for said in (f"{name} = " + value.strip('[]"') + " in ", "gpusetup.toml:4", why, mend):
        assert said in text


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("words", [["resolve", "--from"], ["lock", "--from"], ["doctor", "--root", str(MISMATCH)]])
def test_a_project_forbids_it_too(site, capsys, words, key):
    site("[policy]\nnewest_driver_branch = 600\noldest_driver = '470.57.02'\nforbid_cvss_from = 9.9\n")
    about = f"[tool.other]\npolicy = 1\n[tool.gpusetup]\ngpu = 'a100'\ndriver = '=={OLD}'\n"
    Path("pyproject.toml").write_text(f"{about}\n[tool.gpusetup.policy]\n{key}\n", encoding="utf-8")
    assert main([*words, "pyproject.toml"]) == 5
    name, value = key.split(" = ")
    assert f"{name} = " + value.strip('[]"') + " in pyproject.toml:8 [GS-212]" in capsys.readouterr().err


def test_of_two_policies_the_stricter_value_counts():
    one = Policy(newest_driver_branch=580, oldest_driver="570.9", forbid_end_of_life=("driver",), forbid_cvss_from=7)
    two = Policy(newest_driver_branch=570, oldest_driver="570.86.15", forbid_end_of_life=("cuda",), forbid_cvss_from=8)
    one, two = (replace(said, places=tuple((key, at) for key in _ALLOWS)) for said, at in ((one, "a:1"), (two, "b:2")))
    told = ["newest_driver_branch = 570 in b:2", "oldest_driver = 570.86.15 in b:2"]
    told += ["forbid_end_of_life = cuda, driver in a:1 and b:2", "forbid_cvss_from = 7 in a:1"]
    for found in (stricter(one, two), stricter(two, None, one)):
        assert found is not None
        assert sorted(found.quoted(key).replace("b:2 and a:1", "a:1 and b:2") for key in _ALLOWS) == sorted(told)
    assert (stricter(None, two), stricter(None)) == (two, None)


@pytest.mark.parametrize("command", ["plan", "drift"])
def test_a_toolkit_that_would_stay_is_refused_too(site, printed, command):
    facts = host("580.178.04", "12.4.1", "13.0.2", name="ubuntu24.04-h200-keep")
    inventory = site('components = ["driver"]\n[policy]\nforbid_end_of_life = ["cuda"]\n', facts)
    (refusal,) = printed(5, command, inventory)["hosts"]["a"]["refusals"]
    assert refusal["message"].startswith("CUDA toolkit 12.4.1 breaks the policy: forbid_end_of_life = cuda in ")
    assert refusal["hint"] == "sudo /usr/local/cuda-12.4/bin/cuda-uninstaller"


@pytest.mark.parametrize(("table", "line", "said"), stored_rows("policy-lines.json"))
def test_a_wrong_table_is_bad_input_with_its_line(site, says, table, line, said):
    inventory = site(table)
    Path("pyproject.toml").write_text(table.replace("policy", "tool.gpusetup.policy", 1), encoding="utf-8")
    for words in (["resolve"], ["plan", inventory], ["drift", inventory], ["resolve", "--from", "pyproject.toml"]):
        text = says(3, *words)
        place = f"{'pyproject' if '--from' in words else 'gpusetup'}.toml:{line}: "
        for part in (place, said, "it takes: newest_driver_branch = 580"):
            assert part in text
