"""One report in five formats, accepted by those who read them; the picture of a host's GPUs."""

import json
import re
import shutil
import subprocess
from datetime import datetime, timezone
from itertools import product
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.json import encode

from gpusetup.cli.main import main
from gpusetup.cli.verify import FORMATS
from gpusetup.model.verdict import Curve, Curves, Grid, Item, Result
from gpusetup.report.formats import render, to_text
from gpusetup.report.model import BLAME, HostReport, Report, Row
from gpusetup.report.topology import picture, sentences, topology_of, topology_svg
from gpusetup.report.verification import host_report, verification_report
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import blamed, checks
from tests.unit.verify.verify_documents import captured, set_smi

STARTED = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)
AWKWARD = "a <b> & \"c\" 'd' \x07 ü {{ x }}"


@pytest.fixture(scope="module")
def fleet():
    slow = captured("h200-x4-full")
    slow["sections"]["peer"]["read"][2][1] = [210.0, 212.0]
    set_smi(slow, 2, "persistence_mode", "Disabled")
    documents = {"gpu-a1": captured("h200-x4-full"), "gpu-a2": slow, "gpu-b1": captured("h200-x1-stress")}
    problems = {"gpu-c1": "Connection refused"}
    return verification_report(documents, level="full", started=STARTED, seconds=31.5, problems=problems)


@pytest.fixture(scope="module")
def awkward():
    curves = (Curve(name=AWKWARD, points=((1.0, 2.0),)),)
    figures = (
        Grid(title=AWKWARD, unit="GB/s", rows=(AWKWARD,), columns=("b",), values=((None,),)),
        Curves(title=AWKWARD, x_label="x", y_label="y", lines=curves),
    )
    items = (Item(subject=AWKWARD, verdict="fail", text=AWKWARD),)
    told = Result(id="gpu.ecc", level="quick", verdict="fail", text=AWKWARD, items=items, figures=figures)
    told = structs.replace(told, measured=1, expected=0, limit=0, unit="errors")
    host = HostReport(name=AWKWARD, rows=(Row(label="machine", text=AWKWARD),), results=(told,), seconds=1.0)
    return Report(title=AWKWARD, started="2026-11-20T12:00:00Z", seconds=1.0, program="x", level="quick", hosts=(host,))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_every_text_and_none_is_markup(awkward, name):
    text = render(awkward, name)
    assert text
    assert name != "html" or ("<b>" not in text and "&lt;b&gt;" in text)


def test_json_is_the_contract(fleet):
    document = json.loads(render(fleet, "json"))
    assert (document["schema"], document["ok"], document["level"]) == ("gpusetup/verify/1", False, "full")
    assert set(document["hosts"]) == {"gpu-a1", "gpu-a2", "gpu-b1", "gpu-c1"}
    slow = next(result for result in document["hosts"]["gpu-a2"] if result["id"] == "p2p.read")
    assert (slow["verdict"], slow["measured"]) == ("fail", 212.0)
    assert document["summary"]["gpu-c1"]["problem"] == "Connection refused"


def test_before_maintenance_the_machine_is_at_fault_in_the_check_and_in_its_parts():
    document = captured("h200-x2-quick")
    set_smi(document, 1, "ecc_errors/volatile/dram_uncorrectable", "2")
    document["facts"]["virtualisation"] = {"events": [{"what": "Redeploy"}]}
    (bad,) = [result for result in host_report("a", Machine(document)).results if result.verdict == "fail"]
    assert (bad.id, bad.blame, bad.items[1].blame) == ("gpu.ecc", "host", "host")


@pytest.mark.parametrize("fixture", ["fleet", "awkward"])
def test_promtool_accepts_the_textfile(fixture, request):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    text = render(request.getfixturevalue(fixture), "prometheus")
    argv = [promtool, "check", "metrics"]
    finished = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.returncode, finished.stdout + finished.stderr) == (0, "")


FORM = {
    "text": r"^(FAIL|WARN) +(\S+) +told\n.*\n +at fault: (.*)$",
    "html": r'<span class="verdict \w+">(\w+)</span>.*<code>([^<]*)</code>.*\n.*told<br><small>at fault: (.*)</small>',
    "junit": r'<testcase [^>]*name="([^"]*)"[^>]*>\s*<(failure|system-out)[^>]*>(?:warning: told\n)?.*\nat fault: (.*)</',
    "prometheus": r'gpusetup_verify_check\{host="a",check="([^"]*)",level="\w+",verdict="(\w+)",blame="(\w+)"\} 1',
}


def test_every_form_names_each_failing_check_with_its_verdict_its_figures_and_whose_fault_it_is(fleet):
    words = {"FAIL": "fail", "WARN": "warn", "failure": "fail", "system-out": "warn"}
    words |= {text: name for name, text in BLAME.items()}
    for raw, asked in product(("fail", "warn"), (None, True, False)):
        told = [Result(id=one.id, level=one.level, verdict=raw, text="told", measured=1.5, limit=2) for one in checks()]
        results = tuple(structs.replace(blamed(one.id, one, asked=asked), text="told") for one in told)
        wanted = sorted(sorted((one.verdict, one.id, one.blame)) for one in results)
        report = structs.replace(fleet, hosts=(HostReport(name="a", results=results),))
        for form, pattern in FORM.items():
            text = to_text(report, width=200) if form == "text" else render(report, form)
            found = [sorted(words.get(one, one) for one in match) for match in re.findall(pattern, text, re.MULTILINE)]
            assert (sorted(found), "1.5" in text) == (wanted, True), form
        assert json.loads(render(report, "json"))["hosts"]["a"] == json.loads(encode(results))
        assert text.count("gpusetup_verify_check{") == 5 * len(results), "one verdict of five each"
    text = render(fleet, "prometheus")
    assert 'gpusetup_verify_ok{host="gpu-c1",level="full"} 0' in text
    assert re.search(r'gpusetup_verify_measured\{host="gpu-a2",check="p2p.read",unit="GB/s"\} 212\n', text)


def test_a_failed_check_is_linked_to_its_page_in_the_same_file(fleet):
    page = render(fleet, "html")
    assert '<a href="#check-p2p.read"><code>p2p.read</code></a>' in page
    assert '<section id="check-p2p.read"><h3>' in page
    assert "To do:" in page.partition('id="check-p2p.read"')[2]
    assert 'id="check-gpu.ecc"' not in page, "who passed needs no page"
    linked = set(re.findall(r'href="#(check-[^"]+)"', page))
    assert linked == set(re.findall(r'id="(check-[^"]+)"', page))


def test_a_crowd_fits_a_screen_and_names_who_fails():
    good = Result(id="gpu.present", level="quick", verdict="pass", text="8 GPUs")
    hosts = [
        HostReport(name=f"gpu-{number:04}", results=(good,), seconds=1.0 + number / 7)
        if number % 50
        else HostReport(name=f"gpu-{number:04}", problem=f"ssh: connect to host gpu-{number:04} port 22: refused")
        for number in range(1000)
    ]
    report = Report(title="verify", started=STARTED.isoformat(), seconds=60.0, program="gpusetup", hosts=tuple(hosts))
    text = render(report, "text")
    assert len(text.splitlines()) < 24
    for part in ("980 hosts", "20 hosts", "gpu-0050", "refused", "1000 hosts, 20 failed"):
        assert part in re.sub(r"\s+", " ", text), part


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
        ("h200-x1-full", 1, ["1 GPU", "NUMA node unknown"]),
        ("h200-x2-full", 2, ["2 GPUs", "each with 18 NVLinks into NVSwitches", "NUMA node unknown"]),
        ("h200-x8-quick", 8, ["8 GPUs", "each with 18 NVLinks into NVSwitches", "NUMA node unknown"]),
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


def test_words_of_a_host_are_never_markup_and_no_gpu_is_no_picture():
    found = topology_of({"gpus": [gpu(0) | {"name": "<b>"}]})
    assert "<b>" not in picture(found)
    assert picture(topology_of({"gpus": []})) == ""
    assert picture(topology_of({"gpus": "?"})) == ""


def test_the_page_of_facts_has_picture_and_rows(tmp_path):
    root, page = Path(__file__).resolve().parents[2] / "hosts/ubuntu24.04-h200x8-keep/root", tmp_path / "facts.html"
    assert main(["facts", "--root", str(root), "--format", "html", "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert (text.count('class="gpu"'), "<dt>driver</dt>" in text, "http" in text) == (8, True, False)
