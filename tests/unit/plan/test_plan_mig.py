"""MIG in plans: what people may write, what does not fit, what changes, what comes back."""

import pytest
from msgspec import UNSET

from gpusetup.components.base import Offers, Wanted
from gpusetup.components.driver.sources import context_of
from gpusetup.components.mig import MIG
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord, RecordedMig
from gpusetup.model.facts_machine import Slices
from gpusetup.model.settings import MigCut, MigInstance, RecordedInstance, Settings
from gpusetup.model.stack import DriverChoice, Stack
from gpusetup.model.tables import MigProfile
from gpusetup.plan.actions import role_variables
from gpusetup.plan.lifecycle import differences
from gpusetup.plan.settings import read_level
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.plan.conftest import changes, host

_HOST = "ubuntu24.04-h200x2-keep"
_OWN = tuple(
    MigProfile(name=name, total=total, starts=starts, size=size)
    for name, total, starts, size in (("1g.18gb", 7, (*range(7),), 1), ("3g.71gb", 2, (0, 4), 4), ("7g.141gb", 1, (0,), 8))
)  # fmt: skip


def wishes(value):
    return read_level({"gpusetup_mig": value}, "host gpu1", prefix="gpusetup_")["mig"]


def layouts(facts, value, driver="580.159.04"):
    stack = Stack(driver=DriverChoice(version=driver, branch=driver[:3], module="open", relation="native"))
    context = context_of(matrix().repos, facts, Settings(mig=wishes(value)), Offers(None))
    found = MIG.wants(context, "apt", stack, matrix())
    return found.wish, found.notes


def cut(facts, *instances, mode="Enabled", pending=None):
    there = tuple(MigInstance(profile=name, start=place, compute=(name,)) for place, name in enumerate(instances))
    slices = Slices(instances=there, profiles=_OWN) if mode else None
    gpus = (changed(gpu, mig=mode, mig_pending=pending or mode, slices=slices) for gpu in facts.gpus)
    return changed(facts, gpus=tuple(gpus))


def recorded(facts, *, wanted=None):
    """The first GPU is on record: what it was, and what an apply made of it."""
    address = facts.gpus[0].address
    wanted = {} if wanted is None else {address: MigCut(enabled=True, instances=wanted)}
    return changed(facts, state=HostRecord(mig=RecordedMig(found={address: None}, wanted=wanted)))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("all-1g.18gb", [("all", True, [("1g.18gb", 0, ())])]),
        ('{"all": "all-1g.18gb.me", "1": false}', [("1", False, []), ("all", True, [("1g.18gb+me", 0, ())])]),
        ({0: ["3g.71gb", "1g.18gb"], "1": {"1g.18gb": 7}},
         [("0", True, [("3g.71gb", 1, ()), ("1g.18gb", 1, ())]), ("1", True, [("1g.18gb", 7, ())])]),
        ({"all": {"3g.71gb": ["1c", "2c.3g.71gb"]}}, [("all", True, [("3g.71gb", 1, ("1c.3g.71gb", "2c.3g.71gb"))])]),
        ({"all": {"3g.71gb": ["3c"]}}, [("all", True, [("3g.71gb", 1, ())])]),
        ({"all": "off"}, [("all", False, [])]),
        ({"all": "on"}, [("all", True, [])]),
        ({"all": "all-1g.24gb-me"}, [("all", True, [("1g.24gb-me", 0, ())])]),
    ],
)  # fmt: skip
def test_layouts_are_read(value, read):
    found = [(one.gpu, one.enabled, [(item.profile, item.count, item.compute) for item in one.instances]) for one in wishes(value)]  # fmt: skip
    assert found == read


def test_the_gpu_s_own_table_decides_where_it_is_known():
    facts = cut(host(_HOST), mode="Disabled")
    assert layouts(facts, "all-1g.18gb")[1] == ()
    fits = {"match": r"2 x 3g\.71gb, 1 x 1g\.18gb do not fit on one GPU", "hint": "what fits: 2 x 3g.71gb"}
    with refused(PreflightError, "GS-374", **fits):
        layouts(facts, {"1": ["3g.71gb", "3g.71gb", "1g.18gb"]})
    with pytest.raises(PreflightError, match=r"it has no profile 2g\.35gb"):
        layouts(facts, {"all": "all-2g.35gb"})


@pytest.mark.parametrize(
    ("machine", "value", "driver", "reference", "says"),
    [
        ("debian12-t4-open", "all-1g.18gb", "580.159.04", "GS-371", "GPU 0 (T4) has no MIG"),
        (_HOST, {"7": "off"}, "580.159.04", "GS-371", "names 7, and this host has no such GPU"),
        (_HOST, "all-1g.18gb", "535.161.07", "GS-373", "needs driver 550.90.07, and the stack has 535.161.07"),
        ("rocky9-a100-open", {"0": {"1g.5gb": 8}}, "580.159.04", "GS-374", "does not allow this layout"),
        ("ubuntu22.04-l4vgpu-grid", "all-1g.18gb", "580.159.04", "GS-371", "this host has vGPUs"),
    ],
)
def test_what_cannot_be_is_refused_in_the_plan(machine, value, driver, reference, says):
    with refused(PreflightError, reference, message=says):
        layouts(host(machine), value, driver)


def test_a_plan_says_what_a_gpu_is_and_becomes():
    facts = cut(host(_HOST), "3g.71gb")
    (action,) = changes(MIG, facts, layouts(facts, {"0": "all-1g.18gb", "1": ["3g.71gb"]})[0])
    assert action.what.endswith(": 7 x 1g.18gb")
    assert (action.kind, action.why, action.reboot) == ("mig", "it is 1 x 3g.71gb", False)


def test_ampere_may_need_a_reboot_for_its_mode():
    facts = host("rocky9-a100-open")
    actions = changes(MIG, facts, layouts(facts, "all-balanced")[0])
    assert {action.reboot and "cannot be reset" in action.why for action in actions} == {True}


def test_a_layout_that_waits_for_the_boot_is_no_action_again():
    facts = host(_HOST)
    found, _notes = layouts(facts, {"0": ["3g.71gb"]})
    kept = recorded(facts, wanted=(RecordedInstance(profile="3g.71gb", compute=(), count=1),))
    assert (bool(changes(MIG, facts, found)), changes(MIG, kept, found)) == (True, [])


def test_the_role_is_told_where_a_layout_is_wanted_or_on_record():
    facts = host(_HOST)
    wanted = Wanted(stack=Stack(), packages=None, settings=Settings(), manage_driver=False)
    assert role_variables(facts, wanted).gpu_mig_gpus is UNSET
    told = role_variables(recorded(facts), wanted)
    assert (told.gpu_mig_layouts, told.gpu_mig_gpus) == ((), tuple(gpu.address for gpu in facts.gpus))


@pytest.mark.parametrize(
    ("instances", "mode", "pending", "now", "mend"),
    [
        (("3g.71gb",), "Enabled", None, "1 x 3g.71gb", "apply"), ((), "Disabled", None, "off", "apply"),
        ((), "Disabled", "Enabled", "off", "reboot"), (("1g.18gb", "1g.18gb"), "Enabled", None, "", ""),
    ],
)  # fmt: skip
def test_somebody_else_s_layout_is_drift(instances, mode, pending, now, mend):
    part = RecordedInstance(profile="1g.18gb", compute=("1g.18gb",), start=3)
    facts = recorded(cut(host(_HOST), *instances, mode=mode, pending=pending), wanted=(part, part))
    found = [(item.was, item.now, item.mend) for item in differences(facts) if item.id.startswith("mig-")]
    assert found == ([("2 x 1g.18gb", now, mend)] if now else [])
