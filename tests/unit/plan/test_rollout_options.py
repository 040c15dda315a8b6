"""What options make of a rollout: sizes of batches, the driver that `--keep-driver` keeps, the host that `--plan` is for."""

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.model.plan import Plan
from gpusetup.model.stack import MatrixStamp
from gpusetup.rollout.batches import batches
from gpusetup.rollout.looks import Rollout, _first, _with_own_driver
from gpusetup.rollout.options import Planning
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.plan.conftest import asked

TWENTY = tuple(f"n{number}" for number in range(20))
WISH = asked("driver==580.*")
LOCKED = asked("driver==580.178.04")
KEPT = "ubuntu24.04-h200-keep"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("", [20]), ("1,10%,50%", [1, 2, 10, 7]), ("8", [8, 8, 4]), ("1%", [1] * 20), ("100%", [20]), ("1, 100", [1, 19])],
)
def test_sizes(spec, expected):
    found = batches(TWENTY, spec)
    assert tuple(name for batch in found for name in batch) == TWENTY, "every host once, in order"
    assert [len(batch) for batch in found] == expected
    assert batches((), spec or "1,10%") == []


@pytest.mark.parametrize("spec", ["0", "0%", "101%", "-1", "x", "1,", "1.5", "٣", "1,,2"])
def test_what_is_no_size_is_bad_input(spec):
    with refused(BadInputError, "GS-806"):
        batches(TWENTY, spec)


@pytest.mark.parametrize(
    ("words", "driver", "becomes"),
    [
        ((), {}, "==580.159.04"),  # it works and fits
        (("cuda==13.0.2",), {"version": "525.147.05", "loaded": "525.147.05", "module": None}, "==580.178.04"),
        ((), {"mismatch": True}, "==580.178.04"),  # what does not work is not kept
        ((), None, "==580.178.04"),
    ],
)
def test_a_working_driver_stays_where_the_rest_of_the_lock_goes_with_it(planner, host, words, driver, becomes):
    wish = asked("driver==580.178.04", *words)
    kept = _with_own_driver(planner, host(KEPT, driver=driver), wish)
    assert [item.specifier for item in kept.requirements if item.component == "driver"] == [becomes]
    assert (kept is wish) is (driver is None or "mismatch" in driver or bool(words))


@pytest.mark.parametrize(
    ("wish", "kernel", "carried_out"),
    [
        ({}, {}, True),
        ({"reboot": "never"}, {}, True),  # more care is no other wish
        ({"persistence": False}, {}, False),
        ({}, {"next": "6.8.0-99-generic"}, False),
    ],
)
def test_only_the_host_that_a_plan_was_made_for_is_changed_by_it(
    planner, host, nvidia_ubuntu, wish, kernel, carried_out
):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    plan = Plan(matrix=MatrixStamp(date="", digest=""), hosts={"a": planner.second(facts, WISH, nvidia_ubuntu).plan})
    settings = {"a": changed(WISH, **wish)}
    rollout = Rollout(None, matrix(), None, facts={"a": changed(facts, kernel=kernel)}, settings=settings)
    if carried_out:
        draft = _first(planner, rollout, "a", Planning(made=plan))
        assert (draft.stage, draft.plan) == ("transaction", plan.hosts["a"])
    else:
        with refused(BadInputError, "GS-411"):
            _first(planner, rollout, "a", Planning(made=plan))
