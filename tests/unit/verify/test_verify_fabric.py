"""The NVLink fabric as checks judge it: its state, its manager, the IMEX domain."""

import json
from typing import Any

import pytest

from gpusetup.model.applied import SCHEMA, Applied
from gpusetup.model.settings import AppliedWanted, ImexWish
from gpusetup.model.stack import Stack
from gpusetup.verify.machine import Wanted
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


NODES = ("10.0.0.1", "10.0.0.2")
CHANNEL = {"path": "/dev/nvidia-caps-imex-channels/channel0", "character": True, "mode": "0666", "access": True}


def domain(status: str = "UP", node: str = "READY", link: str = "CONNECTED", version: str = "580.159.04") -> str:
    nodes = {
        str(number): {
            "status": "READY" if number == 0 else node,
            "host": host,
            "hostName": f"tray{number}",
            "version": version,
            "connections": {str(other): {"host": there, "status": link} for other, there in enumerate(NODES)},
        }
        for number, host in enumerate(NODES)
    }
    return json.dumps({"nodes": nodes, "timestamp": "9/4/2026 00:00:00.000", "status": status})


def machine(said: str, *, active: str = "active", channel: bool = True) -> dict[str, Any]:
    document = captured("h200-x1-quick")
    unit = {"unit": "nvidia-imex.service", "active": active, "enabled": "enabled"}
    document["facts"].setdefault("services", {})["imex"] = unit
    document["quick"]["imex"] = {"rc": 0, "stdout": said, "stderr": "", "error": None}
    if channel:
        document["quick"]["device_files"]["files"].append(CHANNEL)
    return document


def judged(document: dict[str, Any], nodes: tuple[str, ...] = NODES) -> tuple[str, str]:
    wish = ImexWish(nodes=nodes) if nodes else None
    kept = AppliedWanted(packages=None, manage_driver=False, requirements=(), adopted=(), services=(), imex=wish)
    found = results(document, Wanted(Applied(schema=SCHEMA, key="k", stack=Stack(), wanted=kept)))["fabric.imex"]
    return found.verdict, found.text


def test_a_machine_without_imex_is_no_case_for_it():
    assert judged(captured("h200-x1-quick"), ()) == ("unsupported", "no IMEX here")


def test_a_domain_that_is_up_passes():
    assert judged(machine(domain())) == ("pass", "UP, 2 machines")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (machine(domain("DOWN", "UNAVAILABLE")), "the domain is DOWN: 10.0.0.2 is UNAVAILABLE"),
        (machine(domain("DEGRADED", link="INVALID")), "the domain is DEGRADED: 10.0.0.1 has no connection to 10.0.0.1"),
        (machine(domain(version="570.172.08")), "10.0.0.1, 10.0.0.2: runs IMEX 570.172.08, and the driver here is 580.159.04"),
        (machine(domain(), channel=False), "channels: there is no channel"),
        (machine(domain(), active="failed"), "nvidia-imex.service is failed"),
    ],
)  # fmt: skip
def test_what_keeps_programs_from_the_domain_fails(document, text):
    verdict, said = judged(document)
    assert verdict == "fail"
    assert text in said


def test_a_machine_that_was_asked_for_and_is_in_no_list_fails():
    assert judged(machine(domain()), (*NODES, "10.0.0.3")) == (
        "fail",
        "10.0.0.3: is in gpusetup_imex, and not in this domain",
    )


def test_what_was_applied_and_is_not_installed_fails():
    verdict, text = judged(captured("h200-x1-quick"))
    assert (verdict, text) == ("fail", "gpusetup_imex was applied, but nvidia-imex is not installed")


@pytest.mark.parametrize("said", ["", "[]", "null", '{"nodes": "x"}', '{"nodes": {"a": {}}}'])
def test_an_answer_that_cannot_be_read_is_no_pass(said):
    assert judged(machine(said))[0] == "skip"
