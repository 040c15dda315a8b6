"""What brings nodes to a lock: a NodeWright package by its own schemas, a DaemonSet by Kubernetes' schemas."""

import ast
import json
import os
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpusetup.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(nodeSelectors={}),
        lambda spec: spec.update(interruptionBudget={"count": 1, "percent": 10}),
        lambda spec: spec["packages"]["gpusetup"].update(name="gpusetup"),
        lambda spec: spec["packages"]["gpusetup"].update(image="registry.example.com/gpusetup-node:1"),
        lambda spec: spec["packages"]["gpusetup"].update(interrupt={"type": "restart"}),
        lambda spec: spec.update(drain={}),
    ],
)
def test_what_nodewright_would_refuse_is_refused(handed, change):
    found = deepcopy(resource(handed))
    change(found["spec"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema("nodewright"))


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
    broken = deepcopy(daemonset)
    broken["spec"]["template"]["spec"]["initContainer"] = []
    with pytest.raises(judge.ValidationError):
        judge.validate(broken, judge.latest_version(), strict=True)


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
