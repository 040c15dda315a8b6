"""What a machine needs after an error, as verify tells it."""

from __future__ import annotations

import pytest

from tests.unit.verify.verify_documents import captured, results, set_smi, verdicts


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
