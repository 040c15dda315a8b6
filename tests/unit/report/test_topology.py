"""The picture of a host's GPUs, from what real machines said of themselves and from ways that others have."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.report.topology import picture, sentences, topology_of, topology_svg
from gpusetup.report.verification import host_report
from gpusetup.verify.machine import Machine
from tests.unit.verify.verify_documents import captured

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
EIGHT = [["X" if i == j else "NV12" for j in range(8)] for i in range(8)]
DGX = [["X", "NV1", "NV1", "NV2"], ["NV1", "X", "NV2", "NV1"], ["NV1", "NV2", "X", "NV2"], ["NV2", "NV1", "NV2", "X"]]
APART = [["X", "NODE", "SYS"], ["NODE", "X", "SYS"], ["SYS", "SYS", "X"]]


def gpu(number, *, node=0, root="", **more):
    link = {"width": 16, "max_width": 16, "speed": "16.0 GT/s PCIe"}
    way = {"above": [f"p{number}", root]} if root else None
    return {"address": f"0000:{number:02x}:00.0", "name": "A100", "numa_node": node, "link": link, "way": way} | more


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("h200-x1-full", 1, ["1 GPU", "NUMA node not told"]),
        ("h200-x2-full", 2, ["2 GPUs", "each with 18 NVLinks into NVSwitches", "NUMA node not told"]),
        ("h200-x8-quick", 8, ["8 GPUs", "each with 18 NVLinks into NVSwitches", "NUMA node not told"]),
    ],
)
def test_real_machines(name, number, said):
    found = host_report("a", Machine(captured(name))).topology
    assert sentences(found) == said
    drawn = topology_svg(found)
    assert len(re.findall(r'class="gpu"', drawn)) == number
    assert ("NVSwitch" in drawn) == (number > 1)
    assert drawn.count("18 NVLinks</text>") == (number if number > 1 else 0)
    assert drawn.count("x16 32 GT/s") == 2 * number, "on the card and in its title"


@pytest.mark.parametrize(
    ("ways", "gpus", "said", "arcs"),
    [
        (EIGHT, 8, "each with 12 NVLinks into NVSwitches", 0),
        (DGX, 4, "NVLinks: GPU 0 4, GPU 1 4, GPU 2 5, GPU 3 5", 6),
        (APART, 3, "2 pairs over the link between NUMA nodes", 0),
    ],
)
def test_links_are_told_one_to_one_unless_a_gpu_reaches_others_over_more_than_it_has(ways, gpus, said, arcs):
    found = topology_of({"gpus": [gpu(number) for number in range(gpus)]}, ways)
    assert said in sentences(found)
    assert topology_svg(found).count("<path") == arcs


def test_links_that_a_gpu_has_fewer_of_are_told_one_by_one():
    links = [{"up": 18 - number, "down": number} for number in (0, 1)]
    gpus = [gpu(number, nvlinks=links[number], fabric={"state": "Completed"}) for number in (0, 1)]
    assert "NVLinks: GPU 0 18, GPU 1 17" in sentences(topology_of({"gpus": gpus}))


def test_devices_stand_on_their_node_and_below_the_bridge_that_they_share():
    hca = {"name": "mlx5_0", "numa_node": 1, "way": {"above": ["x", "root1"]}}
    hca["ports"] = [{"rate": 400.0, "state": "ACTIVE"}]
    gpus = [gpu(0, root="root0"), gpu(1, node=1, root="root1"), gpu(2, node=1, root="root2")]
    drawn = topology_svg(topology_of({"gpus": gpus, "rdma": {"hcas": [hca]}}))
    assert drawn.index("NUMA node 0") < drawn.index("NUMA node 1")
    assert drawn.count("PCIe bridge") == 1, "only GPU 1 and the adapter share one"
    shared = drawn.partition("PCIe bridge")[2]
    assert shared.index("mlx5_0") < shared.index("GPU 1") < shared.index("GPU 2")
    assert "400 Gb/s" in drawn


def test_a_slot_that_gives_fewer_lanes_shows():
    link = {"width": 8, "max_width": 16, "speed": "16.0 GT/s PCIe"}
    found = topology_of({"gpus": [gpu(0), gpu(1) | {"link": link}]})
    assert "GPU 1 has fewer PCI Express lanes than it can" in sentences(found)
    assert topology_svg(found).count("wire narrow") == 1


def test_words_of_a_host_are_never_markup_and_no_gpu_is_no_picture():
    found = topology_of({"gpus": [gpu(0) | {"name": "<b>"}]})
    assert "<b>" not in picture(found)
    assert picture(topology_of({"gpus": []})) == ""
    assert picture(topology_of({"gpus": "?"})) == ""


def test_the_page_of_facts_has_picture_and_rows(tmp_path):
    page = tmp_path / "facts.html"
    root = HOSTS / "ubuntu24.04-h200x8-keep/root"
    words = [sys.executable, "-m", "gpusetup", "facts", "--root", str(root), "--format", "html", "--out", str(page)]
    assert subprocess.run(words, check=False, timeout=60).returncode == 0
    text = page.read_text(encoding="utf-8")
    assert text.count('class="gpu"') == 8
    assert "<dt>driver</dt>" in text
    assert "http" not in text
