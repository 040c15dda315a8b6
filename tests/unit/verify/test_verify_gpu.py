"""GPUs as checks judge them: MIG layouts, what a GPU asks for, the licence of a vGPU."""

import xml.etree.ElementTree as ET

import pytest

from gpusetup.model.settings import MigInstances, MigLayout
from gpusetup.verify.machine import Machine
from tests.unit.verify.verify_documents import applied, broken, captured, results, set_smi, smi_tree, verdicts

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


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("Reset", "GPU 0: asks for: Reset"),
        ("Drain P2P", "which is no new work, and an end of all programs that use several GPUs; then ask again"),
        ("Unheard Of", "which is a person's look: no source says what helps"),
    ],
)
def test_a_word_that_says_little_is_told_in_ours(action, text):
    document = captured("h200-x1-quick")
    set_smi(document, 0, "gpu_recovery_action", action)
    assert text in results(document)["gpu.recovery"].text


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
