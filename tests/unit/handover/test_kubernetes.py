"""The hand-over to Kubernetes: off exactly where the host has it, and what would be done twice is named."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from gpusetup.handover.kubernetes import handover, kubernetes_files
from gpusetup.model.applied import HostRecord, RecordedMig
from gpusetup.model.facts import Facts, Service
from gpusetup.model.facts_machine import Slices
from gpusetup.model.settings import MigCut, MigDevice
from tests.hosts.machines import machine

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("1g.18gb",) * 7
SCHEMA = json.loads((ROOT / "fixtures/handover/clusterpolicy.json").read_text(encoding="utf-8"))


def bare():
    return msgspec.structs.replace(machine("ubuntu24.04-rtx4090-open"), driver=None)


def ready(name="ubuntu24.04-h200x2-keep"):
    facts = machine(name)
    there = msgspec.structs.replace(facts.containers, toolkit="1.18.0", configured=("containerd",))
    return msgspec.structs.replace(facts, containers=there)


def cut(*profiles, ours=False):
    facts = ready()
    gpus = []
    for gpu, kinds in zip(facts.gpus, profiles, strict=True):
        slices = Slices(devices=tuple(MigDevice(profile=kind, uuid=f"MIG-{kind}") for kind in kinds))
        gpus.append(msgspec.structs.replace(gpu, mig="Enabled" if kinds else "Disabled", slices=slices))
    layout = MigCut(enabled=True, instances=())
    record = HostRecord(mig=RecordedMig(found={}, wanted={gpus[0].address: layout})) if ours else None
    return msgspec.structs.replace(facts, gpus=tuple(gpus), state=record)


def told(**hosts):
    found = handover(hosts)
    jsonschema.validate(found.values, SCHEMA)
    return found


def test_hosts_that_have_all_of_it_need_nothing_from_the_operator():
    found = told(a=ready(), b=ready())
    assert (found.values["driver"], found.values["toolkit"]) == ({"enabled": False}, {"enabled": False})
    off = ("nvidia.com/gpu.deploy.driver=false", "nvidia.com/gpu.deploy.container-toolkit=false")
    assert found.labels == {"a": off, "b": off}
    assert yaml.safe_load(kubernetes_files(found)["runtimeclass.yaml"])["handler"] == "nvidia"


def test_hosts_that_have_none_of_it_get_all_from_the_operator():
    found = told(a=bare())
    assert found.values == {"driver": {"enabled": True}, "toolkit": {"enabled": True}, "mig": {"strategy": "single"}}
    assert (found.labels, found.toolkit, found.twice) == ({}, False, ())


def test_where_some_have_it_the_operator_brings_the_same_driver_to_the_others():
    found = told(a=ready(), b=bare())
    assert found.values["driver"] == {"enabled": True, "version": "580.159.04"}
    assert list(found.labels) == ["a"]
    why = "driver: a have one on the host; the operator's driver container is off by the labels of these nodes"
    assert why in found.twice


def test_docker_is_not_what_kubelet_talks_to():
    facts = ready()
    docker = msgspec.structs.replace(facts.containers, configured=("docker", "podman"))
    found = told(a=msgspec.structs.replace(facts, containers=docker))
    assert found.values["toolkit"] == {"enabled": True}
    assert any("gpusetup_containers=containerd" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("profiles", "strategy"),
    [((SMALL, SMALL), "single"), ((SMALL, ("3g.71gb",) * 2), "mixed"), ((SMALL, ()), "mixed"), (((), ()), "single")],
)
def test_the_strategy_follows_the_slices(profiles, strategy):
    assert told(a=cut(*profiles)).values["mig"] == {"strategy": strategy}


def test_a_layout_of_ours_is_not_cut_anew():
    found = told(a=cut(("1g.18gb",), ("1g.18gb",), ours=True))
    assert found.values["migManager"] == {"enabled": False}
    assert "nvidia.com/gpu.deploy.mig-manager=false" in found.labels["a"]
    other = told(a=cut(("1g.18gb",), ("1g.18gb",)))
    assert "migManager" not in other.values


def test_a_host_engine_that_runs_is_named():
    running = {"dcgm": Service(unit="nvidia-dcgm.service", active="active", enabled="enabled")}
    found = told(a=msgspec.structs.replace(ready(), services=running))
    assert any(text.startswith("DCGM: nvidia-dcgm runs on a;") for text in found.twice)


def test_files_are_what_tools_read():
    files = kubernetes_files(told(a=ready(), b=bare()))
    assert sorted(files) == ["README.md", "gpu-operator-values.yaml", "label-nodes.sh", "runtimeclass.yaml"]
    assert yaml.safe_load(files["gpu-operator-values.yaml"])["toolkit"] == {"enabled": True}
    assert yaml.safe_load(files["runtimeclass.yaml"])["kind"] == "RuntimeClass"
    assert "kubectl label node a --overwrite nvidia.com/gpu.deploy.driver=false" in files["label-nodes.sh"]
    assert "# back: kubectl label node a nvidia.com/gpu.deploy.driver- " in files["label-nodes.sh"]


def test_the_command_writes_them(tmp_path, says):
    facts = tmp_path / "facts.json"
    facts.write_bytes(msgspec.json.encode(Facts(hosts={"a": ready()})))
    words, more = ("export", "handover", "kubernetes"), ("--from", facts, "--out", tmp_path / "out")
    document = json.loads(says(0, *words, *more, "--format", "json"))
    assert (document["schema"], document["ok"]) == ("gpusetup/handover/1", True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == document["files"]
    says(3, *words, "x.ini", *more)
