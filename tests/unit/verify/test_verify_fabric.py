"""The NVLink fabric: its switches, its manager, and what goes wrong between them."""

from __future__ import annotations

from tests.unit.verify.verify_documents import captured, differences, results, set_smi, verdicts


def test_fabric_not_started():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    for gpu in range(8):
        set_smi(broken, gpu, "fabric/state", "Not Started")
    assert differences(healthy, broken) == {"fabric.state": "fail"}
    assert "802" in results(broken)["fabric.state"].text
    for gpu in range(8):
        set_smi(broken, gpu, "fabric/state", "In Progress")
    assert differences(healthy, broken) == {"fabric.state": "fail"}


def test_fabric_completed_without_success():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    set_smi(broken, 6, "fabric/status", "Insufficient Resources")
    assert differences(healthy, broken) == {"fabric.state": "fail"}


NVSWITCH = {"kind": "pci", "pci": [{"address": "0000:07:00.0", "pci_id": "10de:22a3"}], "devices": 1, "managers": []}


def _nvswitch(document, *, version, active="active", enabled="enabled"):
    document["facts"]["nvswitch"] = NVSWITCH
    document["quick"]["fabric_manager"] |= {
        "stdout": f"Fabric Manager version is : {version}\n",
        "rc": 0,
        "error": None,
    }
    unit = {"unit": "nvidia-fabricmanager.service", "active": active, "enabled": enabled}
    document["facts"]["services"]["fabricmanager"] = unit


def test_fabric_manager_one_patch_apart():
    document = captured("h200-x8-quick")
    _nvswitch(document, version="580.159.04")
    assert verdicts(document)["fabric.manager"] == "pass"
    _nvswitch(document, version="580.159.03")
    assert verdicts(document)["fabric.manager"] == "fail"


def test_fabric_manager_dead_or_not_enabled():
    document = captured("h200-x8-quick")
    _nvswitch(document, version="580.159.04", active="failed")
    assert verdicts(document)["fabric.manager"] == "fail"
    _nvswitch(document, version="580.159.04", enabled="disabled")
    assert verdicts(document)["fabric.manager"] == "warn"


def test_nvswitches_without_fabric_manager():
    document = captured("h200-x8-quick")
    document["facts"]["nvswitch"] = NVSWITCH
    assert verdicts(document)["fabric.manager"] == "fail"


def test_fabric_manager_on_a_board_without_nvswitch_is_no_failure():
    document = captured("h200-x1-quick")
    document["quick"]["fabric_manager"] |= {
        "stdout": "Fabric Manager version is : 580.159.04\n",
        "rc": 0,
        "error": None,
    }
    assert verdicts(document)["fabric.manager"] == "unsupported"
