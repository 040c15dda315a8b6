"""GPUs as checks judge them: layouts, licences, bandwidths and collectives, and the verdicts that each real fault changes."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from gpusetup.model.settings import MigInstances, MigLayout
from gpusetup.verify.machine import Machine, Wanted
from tests.records import lock_of, stack_document
from tests.unit.verify.verify_documents import (
    applied,
    broken,
    captured,
    differences,
    drop_gpu,
    found_at,
    results,
    set_smi,
    smi_says,
    smi_tree,
    verdicts,
)

PARTS = (MigInstances(profile="3g.71gb"), MigInstances(profile="3g.71gb", compute=("1c.3g.71gb", "2c.3g.71gb")))
APPLIED = "1 x 1c.3g.71gb, 1 x 2c.3g.71gb, 1 x 3g.71gb was applied"


@pytest.mark.parametrize(
    ("parts", "slices", "verdict", "text"),
    [
        (PARTS, ["3g.71gb", "1c.3g.71gb", "2c.3g.71gb"], "pass", "on, 3 slices"),
        (PARTS, ["3g.71gb"], "fail", f"GPU 0: has 1 x 3g.71gb, and {APPLIED}"),
        (PARTS, [], "fail", f"GPU 0: has no slices, and {APPLIED}"),
        ((), ["7g.141gb"], "fail", "GPU 0: has 1 x 7g.141gb, and off was applied"),
    ],
)
def test_slices_are_compared_with_what_was_applied(parts, slices, verdict, text):
    document = broken(ONE, {"gpus/0/slices": [{"profile": name, "uuid": f"MIG-{name}"} for name in slices]})
    for path in ("mig_mode/current_mig", "mig_mode/pending_mig"):
        set_smi(document, 0, path, "Enabled")
    layout = MigLayout(gpu=Machine(document).gpus[0].bus_id, enabled=bool(parts), instances=parts)
    found = results(document, applied(mig=(layout,)))["gpu.mig"]
    assert (found.verdict, found.text) == (verdict, text)


ONE = "h200-x1-quick"


def test_an_xid_before_a_reset_of_ours_is_settled_and_one_after_it_is_not():
    document = captured("h200-x1-quick")
    log = document["quick"]["kernel_log"]
    log["lines"].append("2026-11-21T02:00:00+0000 gpu kernel: NVRM: Xid (PCI:0000:00:06): 62, pid=1, halt")
    told = results(document)["kernel.xid"]
    assert (told.verdict, "it needs a reset of the GPU" in told.text) == ("fail", True)
    log["resets"] = {"0000:00:06.0": {"uptime": 5.0, "time": 1795226401.0}}
    assert verdicts(document)["kernel.xid"] == "pass"
    log["resets"]["0000:00:06.0"]["time"] -= 3600
    assert verdicts(document)["kernel.xid"] == "fail"


LICENSED = "Licensed (Expiry: 2026-12-7 16:1:44 GMT)"


@pytest.mark.parametrize(
    ("states", "verdict", "text"),
    [
        ((), "skip", "no GPU here needs a licence"),
        ((LICENSED, LICENSED), "pass", "licensed"),
        ((LICENSED, "Unlicensed (Restricted)"), "fail", "has no licence"),
    ],
)
def test_every_gpu_needs_its_licence(states, verdict, text):
    document = captured("h200-x2-full")
    with smi_tree(document) as root:
        for gpu, state in zip(root.findall("gpu"), states, strict=False):
            product = ET.SubElement(gpu, "vgpu_software_licensed_product")
            ET.SubElement(product, "licensed_product_name").text = "NVIDIA RTX Virtual Workstation"
            ET.SubElement(product, "license_status").text = state
    found = results(document)["vgpu.licence"]
    assert (found.verdict, text in found.text) == (verdict, True), found.text


FOUR = "h200-x4-full"


def test_a_worker_that_was_stopped_on_a_real_gpu_costs_its_own_measurement_alone():
    """Captured on two GPUs while the first worker was stopped (SIGSTOP) during the matrix products."""
    found = results(captured("h200-x2-worker-stopped"))
    failed = {name for name, result in found.items() if result.verdict == "fail"}
    assert failed == {"matrix.bf16", "matrix.fp16", "matrix.fp32", "matrix.tf32"}
    assert "no answer within 6 s" in found["matrix.bf16"].text
    assert found["nccl.all-reduce"].verdict == "pass", "a new worker took part"


@pytest.mark.parametrize(
    ("on", "told", "check", "says"),
    [
        ("h200-x1-busy", "gpu.idle warn, memory.copy warn, cupy.kernel pass", "memory.copy", "another job"),
        ("h200-x1-memory-full", "cuda.context warn, cupy.kernel skip", "cuda.context", "another job"),
        ("h200-x1-no-device", "device.files fail, cuda.context fail, gpu.count fail", "driver.responds", "uses no GPU"),
    ],
)
def test_machines_that_were_busy_full_or_without_their_device(on, told, check, says):
    found = results(captured(on))
    assert ", ".join(f"{pair.split()[0]} {found[pair.split()[0]].verdict}" for pair in told.split(", ")) == told
    assert says in found[check].text
    assert on != "h200-x1-memory-full" or found["cuda.context"].blame == "job"


def test_between_hosts():
    document = captured(FOUR)
    assert verdicts(document)["nccl.hosts"] == "skip"
    document["sections"]["hosts"] = captured("h200-x4-hosts-first")["sections"]["hosts"]
    found = results(document)["nccl.hosts"]
    assert (found.verdict, "Socket" in found.text) == ("pass", True)
    document["sections"]["hosts"]["ranks"]["0"]["results"][0]["wrong"] = 3
    assert verdicts(document)["nccl.hosts"] == "fail"
    document["sections"]["hosts"] = {"error": "unreachable", "message": "gpu1 did not hand out NCCL's id within 60 s"}
    assert verdicts(document)["nccl.hosts"] == "fail"


LOCK = lock_of(driver="580.159.04", cupy="14.2.0")
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("faults.json").read_text(encoding="utf-8"))


def broken_by(row: dict[str, Any]) -> dict[str, Any]:
    """The row's capture with its fault laid over."""
    document = broken(row["on"], row.get("set"))
    for gpu in row.get("lost", ()):
        drop_gpu(document, gpu)
    if "nvml" in row:
        text, code, error = row["nvml"]
        smi_says(document, text, code, error=error)
    for gpu, figures in row.get("smi", {}).items():
        for path, figure in figures.items():
            set_smi(document, int(gpu), path, figure)
    for path, value in row.get("replace", {}).items():
        folder, _, name = path.rpartition("/")
        at = found_at(document, folder)
        assert value[0] in at[name], "the capture has nothing to replace"
        at[name] = at[name].replace(*value, 1)
    for path, value in row.get("append", {}).items():
        found_at(document, path).append(value)
    for path in row.get("remove", ()):
        folder, _, name = path.rpartition("/")
        del found_at(document, folder)[int(name)]
    return document


@pytest.mark.parametrize("row", ROWS, ids=[row["fault"] for row in ROWS])
def test_a_fault_changes_the_verdicts_that_it_should(row):
    asked = row.get("wanted")
    wanted = (Wanted(lock_of(**asked)) if "driver" in asked else Wanted(**asked)) if asked else None
    document = broken_by(row)
    found = results(document, wanted)
    if "changes" in row:
        assert differences(captured(row["on"]), document, wanted) == row["changes"]
    for name, verdict in row.get("verdicts", {}).items():
        assert found[name].verdict == verdict, name
    if "all" in row:
        assert {result.verdict for result in found.values()} == {row["all"]}
    for name, texts in row.get("say", {}).items():
        for text in texts:
            assert text in found[name].text
    for name, blame in row.get("blame", {}).items():
        assert found[name].blame == blame
    for name, figures in row.get("figures", {}).items():
        assert [found[name].measured, found[name].expected] == figures
    assert {name: found[name].unit for name in row.get("units", {})} == row.get("units", {})


@pytest.mark.parametrize("name", ["h200-x1-quick", "h200-x2-quick", "h200-x8-quick"])
def test_a_healthy_machine_has_no_trouble(name):
    found = verdicts(captured(name), Wanted(LOCK))
    assert "fail" not in found.values()
    assert [check for check, verdict in found.items() if verdict == "warn"] == ["driver.security"]  # as old as it is
    assert found["gpu.count"] == found["driver.version"] == found["gpu.ecc"] == "pass"


def test_the_lock_that_apply_recorded_is_what_is_wanted():
    """Nobody has to name it: the host's own record says which driver it should have."""
    document = captured("h200-x1-quick")
    document["facts"]["state"] = {"lock": {"stack": stack_document(driver="580.178.04"), "wanted": {}}}
    found = results(document)["driver.version"]
    assert (found.verdict, found.expected) == ("fail", "580.178.04")
    assert verdicts(document, Wanted(lock_of(driver="580.159.04")))["driver.version"] == "pass"
