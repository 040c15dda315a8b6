"""Adapters, the way to GPU memory, storage and NCCL over them: judged on captured machines with adapters put beside; the IMEX domain."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusetup.model.settings import GpuDirect, ImexWish
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import find
from tests.modules.stand_ins import programs
from tests.stored import stored
from tests.unit.verify.verify_documents import FILES, applied, broken, captured, put, results

INBOX = GpuDirect(stack="inbox", memory="dma-buf")
FLAVOUR = "driver/loaded/flavour"

GDSCHECK = Path(__file__).resolve().parents[2] / "fixtures/gdscheck"


def hca(name: str = "mlx5_0", *, above: tuple[str, ...] = ("b", "a", "root"), **port: Any) -> dict[str, Any]:
    told = {
        "number": 1, "layer": "InfiniBand", "state": "ACTIVE", "physical": "LinkUp", "rate": 400.0, "fastest": 400.0,
        "subnet_manager": True, "interface": None,
    } | port  # fmt: skip
    way = {"iommu": "identity", "above": list(above), "acs_redirect": []}
    link = {"width": 16, "speed": "32.0 GT/s PCIe"}
    return {
        "name": name, "address": "0000:18:00.0", "board": "MT_0", "numa_node": 0, "way": way, "link": link,
        "ports": [told],
    }  # fmt: skip


def machine(*hcas: dict[str, Any], name: str = "h200-x2-quick", **memlock: Any) -> dict[str, Any]:
    document = captured(name)
    limit = {"kib": None, "unlimited": True, "lifted": False} | memlock
    facts = document["facts"]
    facts |= {"rdma": {"hcas": list(hcas), "peer_memory": False, "memlock": limit}, "arch": "x86_64"}
    facts["kernel"]["running"] = "6.8.0-60-generic"
    facts["driver"]["loaded"]["flavour"] = "open"
    for number, gpu in enumerate(facts["gpus"]):
        gpu["way"] = {"iommu": "identity", "above": [f"g{number}", "a", "root"], "acs_redirect": []}
    return document


def judged(document: dict[str, Any], check: str, wish: GpuDirect | None = INBOX) -> tuple[str, str]:
    found = results(document, applied(gpudirect=wish))
    return (found[check].verdict, found[check].text) if check in found else ("absent", "")


@pytest.mark.parametrize(
    ("hcas", "verdict", "text"),
    [
        ([hca()], "pass", "1 ports at 400 Gb/s"),
        ([hca(rate=None)], "skip", "mlx5_0: its rate is not known"),
        ([hca(rate=200.0)], "warn", "mlx5_0: runs at 200 Gb/s, it can have 400"),
        ([hca(state="INIT")], "fail", "mlx5_0: is INIT: no subnet manager has set it up (opensm, or the switch's)"),
        ([hca(state="DOWN", physical="Polling")], "fail", "mlx5_0: is DOWN (Polling): no cable, or nothing at its end"),
        ([hca(), hca("mlx5_1", state="DOWN", physical="Disabled")], "warn", "mlx5_1: is DOWN (Disabled): no cable, or nothing at its end"),
        ([hca(fastest=None), hca("mlx5_1", fastest=None, rate=100.0)], "warn", "mlx5_1: runs at 100 Gb/s, its sisters have 400"),
        ([hca() | {"link": {"width": 8, "speed": "16.0 GT/s PCIe"}}], "warn", "mlx5_0: PCI Express x8 at 16.0 GT/s PCIe carries 126 of its 400 Gb/s"),
    ],
)  # fmt: skip
def test_a_port_is_judged_by_its_state_and_by_what_it_can(hcas, verdict, text):
    document = machine(*hcas)
    assert judged(document, "rdma.link") == (verdict, text)
    assert judged(document, "rdma.link", None)[0] == ("warn" if verdict == "fail" else verdict)


PEERMEM = GpuDirect(stack="doca", memory="nvidia-peermem")


@pytest.mark.parametrize(
    ("changes", "wish", "verdict", "text"),
    [
        ({}, INBOX, "pass", "by DMA-BUF: open kernel modules"),
        ({"kernel/running": "5.4.0-1"}, INBOX, "fail", "kernel 5.4.0-1 is older than 5.12"),
        ({FLAVOUR: "proprietary"}, INBOX, "fail", "are the proprietary ones"),
        ({FLAVOUR: "proprietary"}, None, "warn", "data goes through the host's memory"),
        ({FLAVOUR: "proprietary", "modules": ["nvidia", "nvidia_peermem"]}, None, "pass", "by nvidia_peermem, which is loaded; no"),
        ({"modules": ["nvidia"]}, PEERMEM, "fail", "nvidia_peermem is not loaded"),
        ({"modules": ["nvidia_peermem"]}, PEERMEM, "pass", "by nvidia_peermem"),
    ],
)  # fmt: skip
def test_the_way_to_gpu_memory(changes, wish, verdict, text):
    document = machine(hca())
    put(document["facts"], changes)
    found = judged(document, "rdma.gpudirect", wish)
    assert (found[0], text in found[1]) == (verdict, True), found


def test_modules_that_were_asked_for_are_loaded():
    wish = GpuDirect(stack="inbox", memory="dma-buf", modules=("ib_ipoib", "gdrdrv"))
    document = machine(hca())
    document["facts"]["modules"] = there = ["nvidia", "gdrdrv"]
    verdict, text = judged(document, "rdma.modules", wish)
    assert (verdict, text.startswith("ib_ipoib: not loaded")) == ("fail", True)
    there.append("ib_ipoib")
    assert judged(document, "rdma.modules", wish) == ("pass", "ib_ipoib, gdrdrv")
    assert judged(document, "rdma.modules")[0] == "absent"


@pytest.mark.parametrize(
    ("lifted", "wish", "verdict", "says"),
    [(False, INBOX, "fail", ""), (False, None, "warn", "only 8 MiB may be locked"), (True, INBOX, "pass", "")],
)
def test_the_limit_of_locked_memory(lifted, wish, verdict, says):
    found = judged(machine(hca(), unlimited=False, kib=8192, lifted=lifted), "rdma.memlock", wish)
    assert (found[0], says in found[1]) == (verdict, True), found


@pytest.mark.parametrize(
    ("gpu", "part", "value", "verdict", "says"),
    [
        (0, "iommu", "identity", "pass", "2 GPUs, 1 adapter: no ACS, no translation"),
        (0, "acs_redirect", ["0000:17:01.0"], "warn", "0000:17:01.0: ACS sends traffic"),
        (0, "iommu", "DMA-FQ", "warn", "the IOMMU translates (DMA-FQ): boot with iommu=pt"),
        (1, "above", ["g1", "other", "otherroot"], "warn", "no adapter is below its switch"),
        (1, "acs_redirect", None, "skip", ""),
    ],
)
def test_acs_an_iommu_that_translates_and_a_gpu_without_an_adapter_below_its_switch(gpu, part, value, verdict, says):
    document = machine(hca(above=("n0", "a", "root")))
    gpus = document["facts"]["gpus"]
    gpus[gpu]["way"][part] = value
    found = judged(document, "pcie.peers")
    assert (found[0], says in found[1]) == (verdict, True), found
    assert part != "above" or gpus[0]["address"] not in found[1]


def test_gpus_that_meet_over_pci_express_alone_are_judged_too_and_those_with_nvlink_are_not():
    document = machine()
    put(document["facts"], {"rdma": None, "gpus/0/way/acs_redirect": ["0000:17:01.0"]})
    assert judged(document, "pcie.peers", None)[0] == "warn"
    put(document["facts"], {"gpus/0/nvlinks": {"up": 18, "down": 0, "slowest": 26.562}})
    assert judged(document, "pcie.peers", None) == ("absent", "")


@pytest.mark.parametrize(
    ("name", "wanted", "verdict", "text"),
    [
        ("1.15-p2pdma", "p2pdma", "pass", "by p2pdma, as gdscheck says"),
        ("1.16-compat", "p2pdma", "fail", "files are copied through the host's memory (compat), and p2pdma was applied"),
        ("1.15-p2pdma", "nvidia-fs", "fail", "files come by p2pdma, and nvidia-fs was applied"),
    ],
)  # fmt: skip
def test_compat_mode_is_no_pass(name, wanted, verdict, text):
    said = {"rc": 0, "stdout": (GDSCHECK / f"{name}.txt").read_text(), "stderr": "", "error": None}
    document = broken("h200-x2-quick", {"quick/gdscheck": said})
    found = judged(document, "gds.mode", GpuDirect(storage=wanted))
    assert (found[0], text in found[1]) == (verdict, True), found


def run(gbits: float | None, error: str = "") -> dict[str, Any]:
    return {"gbits": gbits, "error": error}


HOST = ("host", run(385.1))
BROKEN = ("host", run(None, "Failed to modify QP to RTR"))


@pytest.mark.parametrize(
    ("runs", "cuda", "wish", "busy", "verdict", "says"),
    [
        ([HOST, ("gpu", run(380.0))], True, INBOX, False, "pass", "380 Gb/s and more"),
        ([HOST, ("gpu", run(90.0))], True, INBOX, False, "fail", "mlx5_0 ← GPU 0: 90 Gb/s of 400"),
        ([HOST, ("gpu", run(90.0))], True, INBOX, True, "warn", ""),  # a job uses the adapter, too
        ([BROKEN], True, INBOX, False, "fail", ""),
        ([BROKEN], True, INBOX, True, "warn", ""),
        ([BROKEN], True, None, False, "warn", ""),  # some clouds' adapters cannot run it, and nobody asked
        ([HOST], False, INBOX, False, "warn", "385.1 Gb/s and more; not from GPU memory: this perftest is built without CUDA"),
    ],
)  # fmt: skip
def test_what_an_adapter_writes_is_judged_by_its_link(runs, cuda, wish, busy, verdict, says):
    document = machine(hca(), name="h200-x2-full")
    adapters = [{"name": "mlx5_0", "port": 1, "gpu": 0, "runs": dict(runs)}]
    document["sections"]["rdma"] = {"adapters": adapters, "cuda": cuda}
    if busy:
        document["gpus"][0]["processes"] = [{"pid": "1", "name": "train.py"}]
    found = judged(document, "rdma.bandwidth", wish)
    assert (found[0], found[1] if says else "") == (verdict, says)


@pytest.mark.parametrize(
    ("network", "rates", "verdict", "text"),
    [
        ("Socket", (400.0, 400.0), "warn", "NCCL goes over sockets beside 2 ports with RDMA"),
        ("IB", (400.0, 400.0), "fail", "links: 5.75 GB/s, and 2 ports carry 100"),
        ("IB", (50.0,), "pass", "5.8 GB/s, results correct"),
        ("Socket", (), "pass", "results correct"),
    ],
)
def test_nccl_between_hosts_is_judged_by_the_links(network, rates, verdict, text):
    document = captured("h200-x4-hosts-first")
    document["facts"]["rdma"] = {"hcas": [hca(f"mlx5_{number}", rate=rate) for number, rate in enumerate(rates)]}
    for rank in document["sections"]["hosts"]["ranks"].values():
        rank["log"]["network"] = network
    found = find("nccl.hosts").run(Machine(document))
    assert found.verdict == verdict
    assert text in found.text


def test_ib_write_bw_is_run_with_and_without_cuda(tmp_path, monkeypatch):
    """Its answer has the form of perftest's own; what serves ends with the measurement."""
    for folder in (FILES, FILES.parent):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("write_bandwidth", "child"):
        sys.modules.pop(name, None)
    text = stored("verify_rdma_perftest.txt").replace("SERVED", str(tmp_path / "served"))
    programs(tmp_path, monkeypatch, {"ib_write_bw": text})
    measure = importlib.import_module("write_bandwidth").measure
    ways = (("vfio-pci", ["a", "root"]), ("nvidia", ["x"]), ("nvidia", ["a", "root"]))  # the first is a guest's
    gpus = [{"bound": bound, "way": {"above": above}, "numa_node": 0} for bound, above in ways]
    hcas = [hca(), hca("mlx5_1"), hca("mlx5_2", state="DOWN")]
    found = measure({"rdma": {"hcas": hcas}, "gpus": gpus, "modules": []})
    assert found["cuda"] is True
    first, second = found["adapters"]
    assert (first["gpu"], first["runs"]["host"]["gbits"], first["runs"]["gpu"]["gbits"]) == (1, 96.52, 91.2)
    assert second["runs"]["host"] == {"gbits": None, "error": "Failed to modify QP 327 to RTR"}
    assert "--use_cuda=1 --use_cuda_dmabuf" in (tmp_path / "served").read_text()
    assert measure({"rdma": None, "gpus": [], "modules": []}) == {}


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


def imex(said, *, active="active", channel=True):
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
        (imex(domain()), NODES, "pass", "UP, 2 machines"),
        (imex(domain("DOWN", "UNAVAILABLE")), NODES, "fail", "the domain is DOWN: 10.0.0.2 is UNAVAILABLE"),
        (imex(domain("DEGRADED", link="INVALID")), NODES, "fail", "the domain is DEGRADED: 10.0.0.1 has no connection to 10.0.0.1"),
        (imex(domain(version="570.172.08")), NODES, "fail", "10.0.0.1, 10.0.0.2: runs IMEX 570.172.08, and the driver here is 580.159.04"),
        (imex(domain(), channel=False), NODES, "fail", "channels: there is no channel"),
        (imex(domain(), active="failed"), NODES, "fail", "nvidia-imex.service is failed"),
        (imex(domain()), (*NODES, "10.0.0.3"), "fail", THREE),
        (captured("h200-x1-quick"), NODES, "fail", "gpusetup_imex was applied, but nvidia-imex is not installed"),
        *((imex(said), NODES, "skip", "") for said in ("", "[]", "null", '{"nodes": "x"}', '{"nodes": {"a": {}}}')),
    ],
)  # fmt: skip
def test_a_domain_passes_only_where_it_is_up_with_all_that_was_asked_for(document, nodes, verdict, text):
    found = results(document, applied(imex=ImexWish(nodes=nodes) if nodes else None))["fabric.imex"]
    assert (found.verdict, text in found.text) == (verdict, True), found.text
