"""Figures against reference tools, vendors, the host's own last good run, and with `--strict` another operator's floors."""

import json

import pytest

from gpusetup.cli.main import main
from gpusetup.model.verdict import Item, Result
from gpusetup.recovery.table import catalogue
from gpusetup.verify import expected
from gpusetup.verify.baseline import Kept, compare, completed, floors, load, record, strict
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import checks, judge
from tests.hosts.machines import changed
from tests.unit.verify.verify_documents import FIXTURES, captured, results

NVLINK = 18 * 26.562


def _all_reduce(gpus=8, size=4 << 30, link=NVLINK, *, nvls=False):
    return expected.collective("all_reduce", gpus, size, link, nvls=nvls, nvlink=True)


def test_nvls_helps_above_four_gpus_only():
    nvls = _all_reduce(nvls=True).expected
    assert nvls == pytest.approx(480, rel=0.02)
    assert nvls > 1.25 * _all_reduce().expected
    assert _all_reduce(4, nvls=True) == _all_reduce(4)


def test_expectations_grow_with_the_message_and_the_link():
    figures = [_all_reduce(size=1 << power).expected for power in range(16, 34)]
    assert figures == sorted(figures)
    assert _all_reduce(link=NVLINK / 2).expected == pytest.approx(_all_reduce().expected / 2, rel=0.01)


TOOLS = FIXTURES / "reference-tools"


def test_another_gpu_is_judged_by_its_own_figures_and_measured_as_plain_programs_measure_it():
    """Two H100: the expectations come from bus width, clock and links, not from a list of machines."""
    plain = json.loads((TOOLS / "plain_h100_2.json").read_text(encoding="utf-8"))
    found = results(captured("h100-x2-full"))
    assert {found[check].verdict for check in found if check != "driver.security"} == {"pass", "skip", "unsupported"}
    measured = {name: result.measured for name, result in found.items()}
    assert found["memory.copy"].expected < 3_352  # the datasheet's peak of this memory, in GB/s
    for name, figure in plain["figures"].items():
        assert measured[name] >= 0.97 * figure, name


def test_the_data_cites_its_sources():
    data = expected.expectations()
    cited = [source for rule in data.figures.values() for source in rule.sources]
    cited += [source for rule in data.settings.values() for source in rule.sources] + list(data.nccl.sources)
    assert set(cited) <= set(data.sources)
    for name, rule in data.figures.items():
        assert 0 < rule.fail < rule.warn < rule.typical <= 1, name
    xids = catalogue()
    for number, entry in xids.xids.items():
        assert entry.sources, number
        assert set(entry.sources) <= set(xids.sources)
    known = {check.id for check in checks()}
    assert {floor.check for floor in floors().floors} <= known
    assert {floor.source for floor in floors().floors} == set(floors().sources)


DAY = "2026-11-20"


def _verdict(results, name):
    return next(result for result in results if result.id == name)


def test_a_quick_or_busy_first_run_is_completed_by_a_later_one(tmp_path):
    path = tmp_path / "baseline.json"
    for name in ("h200-x1-quick", "h200-x1-busy", "h200-x1-full"):
        assert main(["verify", "--from", str(FIXTURES / f"observations/{name}.json"), "--baseline", str(path)]) == 0
    (own,) = load(path).hosts.values()
    assert (own.gpus, own.figures["memory.copy"]["GPU 0"].value > 4000) == (1, True)
    written = path.stat().st_mtime_ns
    main(["verify", "--from", str(FIXTURES / "observations/h200-x1-full.json"), "--baseline", str(path)])
    assert path.stat().st_mtime_ns == written, "nothing is new"
    again = ["verify", "--from", str(FIXTURES / "observations/h200-x1-quick.json"), "--baseline", str(path)]
    assert main([*again, "--update-baseline"]) == 0
    assert load(path).hosts["localhost"].figures == own.figures, "a quick run renews nothing that only a full one has"
    board = completed(own, record([figure(Item("GPU 1", "pass", measured=1.0))], 2, DAY), renews=True)
    assert board.figures == {"memory.copy": {"GPU 1": Kept(1.0, DAY)}}, "figures of other GPUs than now"
    good, low = ([figure(*(Item(f"GPU {one}", "pass", measured=at) for one in (0, 1)))] for at in (1.0, 0.8))
    (found,) = compare(low, completed(board, record(good, 2, "2026-12-24")))
    assert [item.text.split(" of ")[1][:10] for item in found.items] == ["2026-12-24", DAY], "each has its own day"


def figure(*items, check="memory.copy", verdict="pass"):
    return Result(id=check, level="full", verdict=verdict, text="", unit="GB/s", items=items)


def test_a_figure_below_its_floor_fails_and_the_others_stay():
    machine = Machine(captured("h200-x4-full"))
    results = judge(machine)
    assert strict(results, machine) == results, "this machine is above every floor that holds for four GPUs"
    items = _verdict(results, "pcie.h2d").items
    items = tuple(changed(item, measured=47.9) if item.subject == "GPU 2" else item for item in items)
    low = tuple(changed(one, items=items) if one.id == "pcie.h2d" else one for one in results)
    (found,) = [new for new, old in zip(strict(low, machine), low, strict=True) if new != old]
    assert (found.id, found.verdict, found.measured, found.limit) == ("pcie.h2d", "fail", 47.9, 48)
    assert [item.subject for item in found.items if item.verdict == "fail"] == ["GPU 2"]


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [
        ([("8 GPUs, 1 MiB", 33.0), ("8 GPUs, 4 GiB", 475.0)], "pass"),
        ([("8 GPUs, 1 MiB", 475.0), ("8 GPUs, 4 GiB", 365.0)], "fail"),
        ([("2 GPUs, 4 GiB", 345.0)], "pass"),
    ],
)
def test_a_collective_is_held_to_its_floor_at_the_largest_message_of_eight_gpus(sizes, verdict):
    items = (Item(subject=subject, verdict="pass", measured=value) for subject, value in sizes)
    (one,) = strict((figure(*items, check="nccl.all-reduce"),), Machine(captured("h200-x8-quick")))
    assert one.verdict == verdict
