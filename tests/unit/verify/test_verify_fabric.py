"""The IMEX domain as its check judges it."""

import json

import pytest

from gpusetup.model.settings import ImexWish
from tests.unit.verify.verify_documents import applied, captured, results

NODES = ("10.0.0.1", "10.0.0.2")
CHANNEL = {"path": "/dev/nvidia-caps-imex-channels/channel0", "character": True, "mode": "0666", "access": True}


def domain(status="UP", node="READY", link="CONNECTED", version="580.159.04"):
    nodes = {
        str(number): {
            "status": "READY" if number == 0 else node, "host": host, "hostName": f"tray{number}", "version": version,
            "connections": {str(other): {"host": there, "status": link} for other, there in enumerate(NODES)},
        }
        for number, host in enumerate(NODES)
    }  # fmt: skip
    return json.dumps({"nodes": nodes, "timestamp": "9/4/2026 00:00:00.000", "status": status})


def machine(said, *, active="active", channel=True):
    document = captured("h200-x1-quick")
    unit = {"unit": "nvidia-imex.service", "active": active, "enabled": "enabled"}
    document["facts"].setdefault("services", {})["imex"] = unit
    document["quick"]["imex"] = {"rc": 0, "stdout": said, "stderr": "", "error": None}
    if channel:
        document["quick"]["device_files"]["files"].append(CHANNEL)
    return document


THREE = "10.0.0.3: is in gpusetup_imex, and not in this domain"


@pytest.mark.parametrize(
    ("document", "nodes", "verdict", "text"),
    [
        (captured("h200-x1-quick"), (), "unsupported", "no IMEX here"),
        (machine(domain()), NODES, "pass", "UP, 2 machines"),
        (machine(domain("DOWN", "UNAVAILABLE")), NODES, "fail", "the domain is DOWN: 10.0.0.2 is UNAVAILABLE"),
        (machine(domain("DEGRADED", link="INVALID")), NODES, "fail", "the domain is DEGRADED: 10.0.0.1 has no connection to 10.0.0.1"),
        (machine(domain(version="570.172.08")), NODES, "fail", "10.0.0.1, 10.0.0.2: runs IMEX 570.172.08, and the driver here is 580.159.04"),
        (machine(domain(), channel=False), NODES, "fail", "channels: there is no channel"),
        (machine(domain(), active="failed"), NODES, "fail", "nvidia-imex.service is failed"),
        (machine(domain()), (*NODES, "10.0.0.3"), "fail", THREE),
        (captured("h200-x1-quick"), NODES, "fail", "gpusetup_imex was applied, but nvidia-imex is not installed"),
        *((machine(said), NODES, "skip", "") for said in ("", "[]", "null", '{"nodes": "x"}', '{"nodes": {"a": {}}}')),
    ],
)  # fmt: skip
def test_a_domain_passes_only_where_it_is_up_with_all_that_was_asked_for(document, nodes, verdict, text):
    found = results(document, applied(imex=ImexWish(nodes=nodes) if nodes else None))["fabric.imex"]
    assert (found.verdict, text in found.text) == (verdict, True), found.text
