"""Adapters, the way to GPU memory, storage and NCCL over them: judged on captured machines with adapters put beside."""

import os
from pathlib import Path
from typing import Any

import pytest

from gpusetup.model.applied import SCHEMA, Applied
from gpusetup.model.settings import AppliedWanted, GpuDirect
from gpusetup.model.stack import Stack
from gpusetup.verify.checks.quick.rdma import modes_of
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.registry import find
from tests.stored import stored
from tests.unit.verify.verify_documents import FILES, captured, results

INBOX = GpuDirect(stack="inbox", memory="dma-buf")
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
    kept = AppliedWanted(packages=None, manage_driver=False, requirements=(), adopted=(), services=(), gpudirect=wish)
    found = results(document, Wanted(Applied(schema=SCHEMA, key="k", stack=Stack(), wanted=kept)))
    return (found[check].verdict, found[check].text) if check in found else ("absent", "")


def test_a_machine_without_adapters_hears_nothing_of_them():
    found = results(captured("h200-x2-quick"))
    assert not [name for name in found if name.startswith(("rdma.", "gds.", "pcie.peers"))]


@pytest.mark.parametrize(
    ("port", "verdict", "text"),
    [
        ({}, "pass", "1 ports at 400 Gb/s"),
        ({"rate": 200.0}, "warn", "mlx5_0: runs at 200 Gb/s, it can have 400"),
        ({"state": "INIT"}, "fail", "mlx5_0: is INIT: no subnet manager has set it up (opensm, or the switch's)"),
        (
            {"state": "DOWN", "physical": "Polling"},
            "fail",
            "mlx5_0: is DOWN (Polling): no cable, or nothing at its end",
        ),
    ],
)
def test_a_port_is_judged_by_its_state_and_by_what_it_can(port, verdict, text):
    document = machine(hca(**port))
    assert judged(document, "rdma.link") == (verdict, text)
    assert judged(document, "rdma.link", None)[0] == ("warn" if verdict == "fail" else verdict)


def test_a_port_without_a_cable_beside_others_and_one_slower_than_its_sisters():
    down = machine(hca(), hca("mlx5_1", state="DOWN", physical="Disabled"))
    assert judged(down, "rdma.link") == ("warn", "mlx5_1: is DOWN (Disabled): no cable, or nothing at its end")
    slow = machine(hca(fastest=None), hca("mlx5_1", fastest=None, rate=100.0))
    assert judged(slow, "rdma.link") == ("warn", "mlx5_1: runs at 100 Gb/s, its sisters have 400")


def test_pci_express_that_does_not_carry_the_port():
    card = hca()
    card["link"] = {"width": 8, "speed": "16.0 GT/s PCIe"}
    verdict, text = judged(machine(card), "rdma.link")
    assert (verdict, text) == ("warn", "mlx5_0: PCI Express x8 at 16.0 GT/s PCIe carries 126 of its 400 Gb/s")


def test_what_was_applied_and_is_not_there_fails():
    document = machine()
    document["facts"]["rdma"] = None
    assert judged(document, "rdma.link")[0] == "fail"


@pytest.mark.parametrize(
    ("changes", "wish", "verdict", "text"),
    [
        ({}, INBOX, "pass", "by DMA-BUF: open kernel modules"),
        ({"kernel": "5.4.0-1"}, INBOX, "fail", "kernel 5.4.0-1 is older than 5.12"),
        ({"flavour": "proprietary"}, INBOX, "fail", "are the proprietary ones"),
        ({"flavour": "proprietary"}, None, "warn", "data goes through the host's memory"),
        ({"flavour": "proprietary", "modules": ["nvidia", "nvidia_peermem"]}, None, "pass", "by nvidia_peermem, which is loaded; no"),
        ({"modules": ["nvidia"]}, GpuDirect(stack="doca", memory="nvidia-peermem"), "fail", "nvidia_peermem is not loaded"),
        ({"modules": ["nvidia_peermem"]}, GpuDirect(stack="doca", memory="nvidia-peermem"), "pass", "by nvidia_peermem"),
    ],
)  # fmt: skip
def test_the_way_to_gpu_memory(changes, wish, verdict, text):
    document = machine(hca())
    facts = document["facts"]
    facts["kernel"]["running"] = changes.get("kernel", facts["kernel"]["running"])
    facts["driver"]["loaded"]["flavour"] = changes.get("flavour", "open")
    facts["modules"] = changes.get("modules", facts["modules"])
    found = judged(document, "rdma.gpudirect", wish)
    assert found[0] == verdict
    assert text in found[1]


def test_modules_that_were_asked_for_are_loaded():
    wish = GpuDirect(stack="inbox", memory="dma-buf", modules=("ib_ipoib", "gdrdrv"))
    document = machine(hca())
    document["facts"]["modules"] = ["nvidia", "gdrdrv"]
    verdict, text = judged(document, "rdma.modules", wish)
    assert (verdict, text.startswith("ib_ipoib: not loaded")) == ("fail", True)
    document["facts"]["modules"] = ["nvidia", "gdrdrv", "ib_ipoib"]
    assert judged(document, "rdma.modules", wish) == ("pass", "ib_ipoib, gdrdrv")
    assert judged(document, "rdma.modules")[0] == "absent"


def test_the_limit_of_locked_memory():
    small = machine(hca(), unlimited=False, kib=8192)
    assert judged(small, "rdma.memlock")[0] == "fail"
    assert "only 8 MiB may be locked" in judged(small, "rdma.memlock", None)[1]
    assert judged(machine(hca(), unlimited=False, kib=8192, lifted=True), "rdma.memlock")[0] == "pass"


def test_acs_an_iommu_that_translates_and_a_gpu_without_an_adapter_below_its_switch():
    document = machine(hca(above=("n0", "a", "root")))
    assert judged(document, "pcie.peers") == ("pass", "2 GPUs, 1 adapter: no ACS, no translation")
    first, second = document["facts"]["gpus"]
    first["way"]["acs_redirect"] = ["0000:17:01.0"]
    assert "0000:17:01.0: ACS sends traffic" in judged(document, "pcie.peers")[1]
    first["way"]["acs_redirect"] = []
    first["way"]["iommu"] = "DMA-FQ"
    assert "the IOMMU translates (DMA-FQ): boot with iommu=pt" in judged(document, "pcie.peers")[1]
    first["way"]["iommu"] = "identity"
    second["way"]["above"] = ["g1", "other", "otherroot"]
    verdict, text = judged(document, "pcie.peers")
    assert (verdict, "no adapter is below its switch" in text, first["address"] in text) == ("warn", True, False)
    second["way"]["acs_redirect"] = None
    second["way"]["above"] = ["g1", "a", "root"]
    assert judged(document, "pcie.peers")[0] == "skip"


def test_gpus_that_meet_over_pci_express_alone_are_judged_too_and_those_with_nvlink_are_not():
    document = machine()
    document["facts"]["rdma"] = None
    document["facts"]["gpus"][0]["way"]["acs_redirect"] = ["0000:17:01.0"]
    assert judged(document, "pcie.peers", None)[0] == "warn"
    document["facts"]["gpus"][0]["nvlinks"] = {"up": 18, "down": 0, "slowest": 26.562}
    assert judged(document, "pcie.peers", None) == ("absent", "")


@pytest.mark.parametrize(
    ("name", "modes"),
    [("1.13-p2pdma", ("p2pdma", "nvidia-fs")), ("1.15-p2pdma", ("p2pdma",)), ("1.14-none", ("compat",)),
     ("1.16-compat", ("compat",)), ("1.7-nvfs-closed", ("compat",))],
)  # fmt: skip
def test_what_gdscheck_says_in_releases_old_and_new(name, modes):
    assert modes_of((GDSCHECK / f"{name}.txt").read_text()) == modes


def test_an_answer_that_is_none_says_no_mode():
    assert modes_of("") is None
    assert modes_of("gdscheck: error while loading shared libraries: libcufile.so.0") is None


@pytest.mark.parametrize(
    ("name", "wanted", "verdict", "text"),
    [
        ("1.15-p2pdma", "p2pdma", "pass", "by p2pdma, as gdscheck says"),
        (
            "1.16-compat",
            "p2pdma",
            "fail",
            "files are copied through the host's memory (compat), and p2pdma was applied",
        ),
        ("1.15-p2pdma", "nvidia-fs", "fail", "files come by p2pdma, and nvidia-fs was applied"),
    ],
)
def test_compat_mode_is_no_pass(name, wanted, verdict, text):
    document = captured("h200-x2-quick")
    document["quick"]["gdscheck"] = {
        "rc": 0,
        "stdout": (GDSCHECK / f"{name}.txt").read_text(),
        "stderr": "",
        "error": None,
    }
    found = judged(document, "gds.mode", GpuDirect(storage=wanted))
    assert found[0] == verdict
    assert text in found[1]


def test_without_gdscheck_the_parts_are_judged_and_never_a_pass():
    document, wish = captured("h200-x2-quick"), GpuDirect(storage="p2pdma")
    document["facts"]["storage"] = {"multipath": True, "registry": "", "use_pci_p2pdma": False}
    verdict, text = judged(document, "gds.mode", wish)
    assert (verdict, "multipath" in text, "cufile.json does not allow" in text) == ("fail", True, True)
    document["facts"]["storage"] = {"multipath": False, "registry": "RMForceStaticBar1=1;", "use_pci_p2pdma": True}
    assert judged(document, "gds.mode", wish)[0] == "warn"
    assert judged(document, "gds.mode", GpuDirect(storage="nvidia-fs"))[0] == "fail"


def wrote(*runs: tuple[str, dict[str, Any]], cuda: bool = True) -> dict[str, Any]:
    document = machine(hca(), name="h200-x2-full")
    adapters = [{"name": "mlx5_0", "port": 1, "gpu": 0, "runs": dict(runs)}]
    document["sections"]["rdma"] = {"adapters": adapters, "cuda": cuda}
    return document


def run(gbits: float | None, error: str = "") -> dict[str, Any]:
    return {"gbits": gbits, "error": error}


def test_what_an_adapter_writes_is_judged_by_its_link():
    good = wrote(("host", run(385.1)), ("gpu", run(380.0)))
    assert judged(good, "rdma.bandwidth") == ("pass", "380 Gb/s and more")
    slow = wrote(("host", run(385.1)), ("gpu", run(90.0)))
    assert judged(slow, "rdma.bandwidth") == ("fail", "mlx5_0 ← GPU 0: 90 Gb/s of 400")
    broken = wrote(("host", run(None, "Failed to modify QP to RTR")))
    assert judged(broken, "rdma.bandwidth")[0] == "fail"
    assert judged(broken, "rdma.bandwidth", None)[0] == "warn", "some clouds' adapters cannot run it, and nobody asked"
    for beside in (slow, broken):
        beside["gpus"][0]["processes"] = [{"pid": "1", "name": "train.py"}]
        assert judged(beside, "rdma.bandwidth")[0] == "warn", "a job uses the adapter, too"
    half = wrote(("host", run(385.1)), cuda=False)
    assert judged(half, "rdma.bandwidth") == (
        "warn", "385.1 Gb/s and more; not from GPU memory: this perftest is built without CUDA",
    )  # fmt: skip


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


PERFTEST = stored("verify_rdma_perftest.txt")


def test_ib_write_bw_is_run_with_and_without_cuda(tmp_path, monkeypatch):
    """Its answer has the form of perftest's own; what serves ends with the measurement."""
    import importlib
    import sys

    monkeypatch.syspath_prepend(str(FILES))
    monkeypatch.syspath_prepend(str(FILES.parent))
    for name in ("write_bandwidth", "child"):
        sys.modules.pop(name, None)
    program = tmp_path / "ib_write_bw"
    program.write_text(PERFTEST.replace("SERVED", str(tmp_path / "served")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    measure = importlib.import_module("write_bandwidth").measure
    gpus = [{"way": {"above": ["x"]}, "numa_node": 1}, {"way": {"above": ["a", "root"]}, "numa_node": 0}]
    found = measure(
        {"rdma": {"hcas": [hca(), hca("mlx5_1"), hca("mlx5_2", state="DOWN")]}, "gpus": gpus, "modules": []}
    )
    assert found["cuda"] is True
    first, second = found["adapters"]
    assert (first["gpu"], first["runs"]["host"]["gbits"], first["runs"]["gpu"]["gbits"]) == (1, 96.52, 91.2)
    assert second["runs"]["host"] == {"gbits": None, "error": "Failed to modify QP 327 to RTR"}
    assert "--use_cuda=1 --use_cuda_dmabuf" in (tmp_path / "served").read_text()
    assert measure({"rdma": None, "gpus": [], "modules": []}) == {}
