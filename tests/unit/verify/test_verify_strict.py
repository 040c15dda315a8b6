"""`--strict`: figures below another operator's floor fail, and nothing else changes."""

from __future__ import annotations

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.model.verdict import Item, Result
from gpusetup.verify import strict as strictness
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import checks, judge
from gpusetup.verify.strict import floors, strict
from tests.unit.verify.verify_documents import FIXTURES, captured


def reduced(*sizes):
    items = tuple(Item(subject=subject, verdict="pass", measured=value) for subject, value in sizes)
    return Result(id="nccl.all-reduce", level="full", verdict="pass", text="", unit="GB/s", items=items)


def test_a_figure_below_its_floor_fails_and_the_others_stay():
    machine = Machine(captured("h200-x4-full"))
    results = judge(machine)
    assert strict(results, machine) == results, "this machine is above every floor that holds for four GPUs"
    low = tuple(
        msgspec.structs.replace(
            one,
            items=tuple(
                msgspec.structs.replace(item, measured=47.9) if item.subject == "GPU 2" else item for item in one.items
            ),
        )
        if one.id == "pcie.h2d"
        else one
        for one in results
    )
    (changed,) = [new for new, old in zip(strict(low, machine), low, strict=True) if new != old]
    assert (changed.id, changed.verdict, changed.measured, changed.limit) == ("pcie.h2d", "fail", 47.9, 48)
    assert [item.subject for item in changed.items if item.verdict == "fail"] == ["GPU 2"]


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [
        ([("8 GPUs, 1 MiB", 33.0), ("8 GPUs, 4 GiB", 475.0)], "pass"),
        ([("8 GPUs, 1 MiB", 475.0), ("8 GPUs, 4 GiB", 365.0)], "fail"),
        ([("2 GPUs, 4 GiB", 345.0)], "pass"),
    ],
)
def test_a_collective_is_held_to_its_floor_at_the_largest_message_of_eight_gpus(sizes, verdict):
    (one,) = strict((reduced(*sizes),), Machine(captured("h200-x8-quick")))
    assert one.verdict == verdict


def test_what_was_measured_beside_a_job_is_held_to_no_floor():
    items = (Item("GPU 0", "warn", "measured at low load", 20.0, blame="job"),)
    result = Result(id="pcie.h2d", level="full", verdict="warn", text="", unit="GB/s", items=items)
    machine = Machine(captured("h200-x8-quick"))
    assert strict((result,), machine) == (result,)


def test_every_floor_names_a_check_and_a_source():
    known = {check.id for check in checks()}
    assert {floor.check for floor in floors().floors} <= known
    assert {floor.source for floor in floors().floors} == set(floors().sources)


def test_it_is_asked_for_by_its_option(monkeypatch, capsys):
    seen = str(FIXTURES / "observations/h200-x4-full.json")
    assert main(["verify", "--from", seen, "--strict"]) == 0
    higher = tuple(msgspec.structs.replace(floor, floor=56.0) for floor in floors().floors if floor.check == "pcie.h2d")
    raised = msgspec.structs.replace(floors(), floors=higher)
    monkeypatch.setattr(strictness, "floors", lambda: raised)
    assert main(["verify", "--from", seen]) == 0
    assert main(["verify", "--from", seen, "--strict"]) == 8
    assert "below 56 GB/s, the floor of Microsoft's node check" in " ".join(capsys.readouterr().out.split())
