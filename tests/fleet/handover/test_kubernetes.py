"""The hand-over to Kubernetes: off where the host has it, nothing done twice; what brings nodes to a lock, by its schemas."""

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from gpusetup.cli.main import command_parser, main
from gpusetup.cli.options import refuse_idle
from gpusetup.model.applied import HostRecord, RecordedMig
from gpusetup.model.facts import Facts, Service
from gpusetup.model.facts_machine import Slices
from gpusetup.model.settings import MigCut, MigDevice
from gpusetup_fleet.handover.kubernetes import handover, kubernetes_files
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
    files = kubernetes_files(found)
    assert sorted(files) == ["README.md", "gpu-operator-values.yaml", "label-nodes.sh", "runtimeclass.yaml"]
    assert yaml.safe_load(files["gpu-operator-values.yaml"])["toolkit"] == {"enabled": True}
    assert yaml.safe_load(files["runtimeclass.yaml"])["kind"] == "RuntimeClass"
    assert "kubectl label node a --overwrite nvidia.com/gpu.deploy.driver=false" in files["label-nodes.sh"]
    assert "# back: kubectl label node a nvidia.com/gpu.deploy.driver- " in files["label-nodes.sh"]


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


def test_the_command_writes_them(tmp_path, printed, says):
    facts = tmp_path / "facts.json"
    facts.write_bytes(msgspec.json.encode(Facts(hosts={"a": ready()})))
    words, more = ("export", "handover", "kubernetes"), ("--from", facts, "--out", tmp_path / "out")
    document = printed(0, *words, *more)
    assert (document["schema"], document["ok"]) == ("gpusetup/handover/1", True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == document["files"]
    says(3, *words, "x.ini", *more)


def schema(name):
    return json.loads((ROOT / f"fixtures/handover/{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def handed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    lock = folder / "gpu.lock.json"
    assert main(["lock", "driver==580.*", "--gpu", "h100", "--os", "ubuntu24.04", "--out", str(lock)]) == 0
    reader, writer = os.pipe()  # as a shell's <(…): it can be read once
    os.write(writer, lock.read_bytes())
    os.close(writer)
    command = ["export", "handover", "kubernetes", "--lock", f"/dev/fd/{reader}", "--out", str(folder / "out")]
    assert main(command) == 0
    os.close(reader)
    return folder / "out"


def resource(handed):
    found: dict[str, Any] = yaml.safe_load((handed / "nodewright.yaml").read_text())
    return found


def test_the_resource_is_one_and_one_node_at_a_time(handed):
    found = resource(handed)
    jsonschema.validate(found, schema("nodewright"))
    spec, package = found["spec"], found["spec"]["packages"]["gpusetup"]
    assert spec["interruptionBudget"] == {"count": 1}
    assert package["interrupt"] == {"type": "reboot"}
    assert set(package["configInterrupts"]) <= set(package["configMap"])
    lock = json.loads(package["configMap"]["gpu.lock.json"])
    assert lock == json.loads((handed.parent / "gpu.lock.json").read_text())
    assert spec["nodeSelectors"]["matchLabels"] == {"gpusetup/lock": lock["digest"][:12]}


def test_the_package_is_what_the_agent_reads(handed):
    config = json.loads((handed / "node/config.json").read_text())
    jsonschema.validate(config, schema("nodewright-package"))
    assert set(config["expected_config_files"]) == set(resource(handed)["spec"]["packages"]["gpusetup"]["configMap"])
    steps = [step for steps in config["modes"].values() for step in steps]
    for step in steps:
        assert os.access(handed / "node/skyhook_dir" / step["path"], os.X_OK), step
    checked = {mode: steps for mode, steps in config["modes"].items() if mode.endswith("-check")}
    assert set(checked) == {"apply-check", "config-check", "post-interrupt-check", "uninstall-check"}
    checks = [step for steps in checked.values() for step in steps]
    assert [step["returncodes"] for step in checks] == [[0]] * 4, "a check that is content with a failure is none"


def test_its_programs_are_ones_for_the_oldest_node(handed):
    for path in (handed / "node/skyhook_dir").iterdir():
        first, text = path.read_text().splitlines()[0], path.read_text()
        if first.endswith(("python3", "/python")):
            ast.parse(text, feature_version=(3, 6))
        else:
            assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0, path


def test_no_program_gives_an_option_that_its_command_refuses(handed):
    for path in (handed / "node/skyhook_dir").glob("*.sh"):
        for name, more in (("gpusetup.sh", ["--extra-vars", "@x"]), ("bin/gpusetup", [])):
            for words in re.findall(rf'{name}"? ([a-z].*)', path.read_text()):
                parser = command_parser(words.split()[0])
                refuse_idle(parser.parse_args([*words.split()[1:], *more]), parser)


def test_the_daemonset_is_what_kubernetes_takes(handed):
    judge = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all((handed / "daemonset.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Namespace", "ConfigMap", "DaemonSet"]
    for document in documents:
        judge.validate(document, judge.latest_version(), strict=True)
    daemonset = documents[2]
    pod = daemonset["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == resource(handed)["spec"]["nodeSelectors"]["matchLabels"]
    assert pod["volumes"][1]["configMap"]["name"] == documents[1]["metadata"]["name"]
    assert daemonset["spec"]["selector"]["matchLabels"].items() <= daemonset["spec"]["template"]["metadata"]["labels"].items()  # fmt: skip


def test_hosts_and_a_lock_go_together_and_no_lock_is_no_package(handed, tmp_path, says):
    facts, both, alone = tmp_path / "facts.json", tmp_path / "both", tmp_path / "alone"
    root, lock = ROOT / "hosts/ubuntu24.04-h200x2-keep/root", handed.parent / "gpu.lock.json"
    says(0, "facts", "--root", root, "--format", "json", "--out", facts)
    words = ("export", "handover", "kubernetes", "--from", facts, "--out")
    says(0, *words, both, "--lock", lock)
    written = {"nodewright.yaml", "daemonset.yaml", "gpu-operator-values.yaml", "README.md", "NODES.md"}
    assert written <= {path.name for path in both.iterdir()}
    says(0, *words, alone)
    assert not (alone / "nodewright.yaml").exists()
    says(3, "export", "handover", "awx", "--lock", lock, "--out", alone)
