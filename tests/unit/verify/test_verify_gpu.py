"""GPUs as checks judge them: layouts, licences, the verdicts that each real fault changes, and laws of all checks."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from gpusetup.model.settings import MigInstances, MigLayout
from gpusetup.model.verdict import worst
from gpusetup.verify import registry
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.registry import checks, find
from gpusetup.verify.smi import SmiGpu
from tests.records import lock_of
from tests.unit.verify.test_verify_rdma import hca
from tests.unit.verify.verify_documents import (
    applied,
    broken,
    captured,
    differences,
    drop_gpu,
    found_at,
    places,
    put,
    results,
    set_smi,
    smi_says,
    smi_tree,
    verdicts,
)

ONE, FULL, FOUR, HOSTS = "h200-x1-quick", "h200-x1-full", "h200-x4-full", "h200-x4-hosts-first"
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


RATES = "sections/nccl/groups/2/ranks/*/results/{}/bus/*"
SWEPT = [
    (FULL, "memory.copy", "sections/memory/0/copy/*", 1), (FULL, "matrix.bf16", "sections/matrix/0/formats/bf16/tflops/*", 1),
    (FULL, "pcie.h2d", "sections/pcie/0/nodes/0/h2d/*", 1), (FOUR, "p2p.write", "sections/peer/write/2/1/*", 1),
    (FOUR, "nccl.all-reduce", RATES.format(6), 1), (FOUR, "nccl.all-reduce", RATES.format(2), 1),
    (FULL, "launch.latency", "sections/launch/0/rows/*/stream_us", 40),
    (HOSTS, "nccl.hosts", "sections/hosts/ranks/*/results/*/bus/*", 1), (FULL, "rdma.bandwidth", "sections/rdma/adapters/0/runs/host/gbits", 1),
    (ONE, "gpu.memory-repair", "retired_pages/double_bit_retirement/retired_count", 90),
    (ONE, "gpu.ecc", "ecc_errors/volatile/dram_correctable", 9000),
    (ONE, "gpu.power", "gpu_power_readings/current_power_limit", 700),
]  # fmt: skip
"""A capture, a check, the places of a figure (in the document, else in nvidia-smi's XML), and how far to sweep it."""


def swept(on, check, place, share, most):
    document = captured(on)
    adapters = [{"name": "mlx5_0", "port": 1, "gpu": 0, "runs": {"host": {"gbits": 390.0, "error": ""}}}]
    document["sections"]["rdma"] = {"adapters": adapters, "cuda": True}
    document["facts"]["rdma"] = {"hcas": [hca(rate=400.0 if on == FULL else 50.0)]}
    for rank in document["sections"].get("hosts", {}).get("ranks", {}).values():
        rank["log"]["network"] = "IB"
    if place.startswith("sections"):
        paths = places(document, place.split("/"))
        put(document, {path: found_at(document, path) * share * most for path in paths})
    else:
        for path in ("remapped_row_failure", "remapped_row_pending") if "retired" in place else ():
            set_smi(document, 0, f"remapped_rows/{path}", "N/A")
        set_smi(document, 0, place, f"{share * most:.0f}")
    return find(check).run(Machine(document))


@pytest.mark.parametrize(("on", "check", "place", "most"), SWEPT, ids=[f"{row[1]} {row[2]}" for row in SWEPT])
def test_a_figure_is_printed_with_the_limit_that_it_crossed(on, check, place, most):
    swept_ = (swept(on, check, place, share / 40, most) for share in range(41))
    found = [one for one in swept_ if one.measured is not None]
    (good, *_), grave = ([one for one in found if one.verdict in kind] for kind in (("pass",), ("fail", "warn")))
    assert grave
    for one in grave:
        down = one.measured < one.limit
        short = [other for other in found if (other.measured < one.limit if down else other.measured > one.limit)]
        assert one in short, one.text
        assert good not in short, one.text
        assert {worst([one.verdict, other.verdict]) == other.verdict for other in short} == {True}, one.text


OPTIONAL = re.compile(
    "product_name|gsp_firmware_version|compute_mode|minor_number|pci_device_id|sm_clock|gpu_util|replay_counter|health"
    "|pending_(ecc|mig)|(channel|tpc)_repair|unrepairable|sram_threshold|current_link_gen|gpu_temp$|remapped_rows$"
)
"""What is compared only where nvidia-smi shows it."""
LOADED = ("h100-x2-stress", "h200-x4-full", "h200-x1-quick", "h100-x1-packages")


@pytest.mark.parametrize("name", LOADED)
def test_no_check_passes_with_the_same_words_when_nvidia_smi_does_not_show_what_it_reads(name, monkeypatch):
    machine, hidden, read, blind = Machine(captured(name)), [""], set(), []
    for method, nothing in (("text", None), ("children", {})):
        shown = getattr(SmiGpu, method)

        def told(gpu, path, shown=shown, nothing=nothing):
            read.update([path] if shown(gpu, path) else [])
            return nothing if path == hidden[0] else shown(gpu, path)

        monkeypatch.setattr(SmiGpu, method, told)
    for check in checks():
        read.clear()
        healthy = check.run(machine)
        for path in sorted(read) if healthy.verdict == "pass" else ():
            hidden[0] = path
            found, hidden[0] = check.run(machine), ""
            same = (found.verdict, found.text) == ("pass", healthy.text)
            blind += [(check.id, path)] if same and not OPTIONAL.search(path) else []
    assert blind == []


@pytest.mark.parametrize("on", [FULL, FOUR])
@pytest.mark.parametrize("name", ["processes", "joined", ""])
def test_no_figure_is_judged_beside_a_job_not_even_one_that_began_meanwhile(on, name):
    document, job = captured(on), {"pid": "7", "name": "train", "type": "C"}
    put(document, {f"gpus/{gpu}/{name}": [job] for gpu in range(len(document["gpus"])) if name})
    rates = [
        "memory/*/*/*",
        "matrix/*/formats/*/tflops/*",
        "pcie/*/nodes/*/*/*",
        "nccl/groups/*/ranks/*/results/*/bus/*",
    ]
    for place in rates:
        for path in places(document, ["sections", *place.split("/")]):
            put(document, {path: found_at(document, path) * 0.3})
    for path in places(document, ["sections", "launch", "*", "rows", "*", "graph_us"]):
        put(document, {path: found_at(document, path) * 40})
    rated = ("memory.", "matrix.", "pcie.", "nccl.", "launch.")
    found = [check.run(Machine(document)) for check in checks() if check.id.startswith(rated)]
    low = [one for one in found if one.unit in ("GB/s", "TFLOP/s", "µs") and one.verdict in ("warn", "fail")]
    assert len(low) >= 9
    assert {(one.verdict, one.blame, one.limit is None) for one in low} == (
        {("warn", "job", True)} if name else {("fail", "gpu", False), ("fail", "host", False), ("warn", "host", False)}
    )


PIECES = {
    "stress.compute": ["sections/stress/workers/1"], "stress.ecc": ["sections/stress/after/kernel_log", "quick/kernel_log"],
    "stress.thermal": ["sections/stress/samples"], "cuda.libraries": ["sections/torch/loaded", "sections/jax/loaded"],
    "device.files": ["quick/device_files/majors"], "gpu.persistence": ["facts/services"],
}  # fmt: skip
"""What a check reads beside the places of its seconds."""


@pytest.mark.parametrize("name", LOADED)
def test_no_check_passes_with_the_same_words_when_a_piece_of_its_evidence_is_taken_away(name):
    document, tried, blind = captured(name), 0, []
    there = {f"{top}/{one}" for top in ("facts", "quick", "sections") for one, told in document[top].items() if told}
    for check in checks():
        healthy = check.run(Machine(document))
        taken = [
            path
            for top in ("quick", "sections")
            for place in check.took.split()
            for path in places(document, [top, *place.split("/")])
        ]
        taken += [path for path in PIECES.get(check.id, ()) if "/".join(path.split("/")[:2]) in there]
        for path in taken if healthy.verdict == "pass" else ():
            for edits, gone in (({}, [path]), ({path: {"error": "timeout", "deadline": 9}}, [])):
                found, tried = registry._result(check, Machine(broken(name, edits, gone))), tried + 1
                if found and (found.verdict, found.text) == ("pass", healthy.text):
                    blind.append((check.id, path, gone))
    assert (blind, tried > 20) == ([], True)


@pytest.mark.parametrize("on", LOADED[:2])
def test_what_was_left_out_because_of_a_job_blames_the_job(on):
    document = captured(on)
    put(document, {f"gpus/{gpu}/processes": [{"pid": "7", "name": "train"}] for gpu in range(len(document["gpus"]))})
    for part in ({"skipped": "another job uses every GPU"}, {"workers": {}, "busy": ["0"], "minutes": 1, "after": {}}):
        document["sections"].update(nccl={"groups": [], "skipped": "another job uses a GPU"}, stress=part)
        found = [registry._result(check, Machine(document)) for check in checks()]
        left_out = [one for one in found if one and one.verdict in ("warn", "fail") and "another job" in one.text]
        assert {one.blame for one in left_out} == {"job"}
