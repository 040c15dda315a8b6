"""The registry: checks are found by being below their level, and each has a page."""

import re
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpusetup.model.verdict import Finding, Grid, Item
from gpusetup.report.formats import render
from gpusetup.report.verification import verification_report
from gpusetup.verify.checks.smoke.frameworks import _too_few
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import LEVELS, NEEDS, checks, find, from_items
from tests.stored import spoiled
from tests.unit.verify.verify_documents import broken, captured, results

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_below_a_level_registers_checks():
    files = [path for level in LEVELS for path in (ROOT / "gpusetup/verify/checks" / level).glob("[!_]*.py")]
    registers = re.compile(r"^ *(@check|table)\(", re.MULTILINE)
    assert [str(path) for path in files if not registers.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.id)
def test_a_check_without_its_observations_never_passes(check):
    """Emptied documents: whatever a check needs is gone, so it may say anything but pass."""
    bare = captured("h200-x4-full")
    bare |= {"sections": {}, "quick": {}, "facts": {"gpus": bare["facts"]["gpus"]}, "gpus": [], "level": "stress"}
    assert check.run(Machine(bare)).verdict != "pass"


def test_a_crashing_check_fails_alone():
    found = results(broken("h200-x1-full", {"sections/matrix/0/formats/fp32": {"tflops": []}}))
    assert (found["matrix.fp32"].verdict, found["matrix.fp16"].verdict) == ("fail", "pass")
    assert "could not be evaluated" in found["matrix.fp32"].text


def test_a_conclusion_has_its_diagrams_and_nothing_to_look_at_is_a_skip():
    grid = Grid(title="t", unit="", rows=("a",), columns=("a",), values=((1.0,),))
    assert from_items([Item("GPU 0", "pass")], "well", figures=(grid,)).figures == (grid,)
    assert from_items([], "well") == Finding("skip", "nothing to check")


def test_every_page_says_what_to_do():
    for check in checks():
        assert "To do:" in check.page, check.id
        assert set(check.needs) <= set(NEEDS), check.id
        assert {"gpu", "expected"} & set(check.needs), check.id
    assert len({check.id for check in checks()}) == len(checks())


@pytest.mark.parametrize(
    ("verdict", "limit", "figures", "leading"),
    [
        ("warn", 10, (11, 5000), 5000),
        ("fail", 0, (1, 70), 70),
        ("fail", 80.0, (60.0, 20.0), 20.0),
        ("pass", 80, (100, 85), 85),
    ],
)
def test_the_part_furthest_beyond_its_limit_leads(verdict, limit, figures, leading):
    items = [Item(f"GPU {number}", verdict, "", figure, limit=limit) for number, figure in enumerate(figures)]
    assert from_items(items, "well").measured == leading


def test_a_framework_that_sees_fewer_gpus_than_the_driver_fails():
    machine = SimpleNamespace(gpus=["a", "b"], mig=lambda _gpu: None)
    assert _too_few("JAX", [Item("GPU 0", "pass")], machine).text == "JAX sees 1 of 2 GPUs"
    assert _too_few("JAX", [Item("GPU 0", "pass"), Item("GPU 1", "pass")], machine) is None


def test_seconds_are_those_of_the_measurement():
    machine = Machine(captured("h200-x4-full"))
    assert find("nccl.all-reduce").run(machine).seconds > 5
    assert find("gpu.ecc").run(machine).seconds < 3


def test_observations_of_another_form_fail_their_host_alone():
    known = captured("h200-x2-quick")
    for document in spoiled(known, 2):
        if isinstance(document, dict) and document.get("schema") == known["schema"]:
            report = verification_report({"a": document}, level="quick", started=datetime.now(timezone.utc), seconds=1)
            assert report.hosts[0].problem or report.hosts[0].results
            assert render(report, "text")
