"""Limits on compiler wheels never make a finished environment anew by themselves, and a record speaks for all its pins."""

import msgspec
import pytest

from gpusetup.components.python.environments import lacking
from gpusetup.model.applied import SCHEMA
from gpusetup.model.facts import HostFacts, Python
from gpusetup.model.settings import HashedLines, Settings
from gpusetup.resolve.requests import parse_requirements
from tests.records import record

LINE = "torch==2.14.1"
LIMITED = (LINE, "cuda-bindings<13.1", "nvidia-nvjitlink<13.1")
STACK = {
    "driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"},
    "torch": {"version": "2.14.1", "variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": "", "on_pypi": True},
}  # fmt: skip


def wishes(**about):
    return Settings(requirements=parse_requirements([LINE]), **about)


@pytest.fixture
def bare(host):
    facts: HostFacts = host("ubuntu24.04-h200-keep")
    return facts


def with_environment(facts, lines, nvjitlink, **expect):
    wanted = {"manage_driver": False, "packages": None, "requirements": lines, "adopted": [], "services": []}
    python = {"path": "/opt/gpusetup", "packages": {"torch": "2.14.1"}, **expect}
    told = record(
        {
            "lock": {"schema": SCHEMA, "key": "another matrix", "stack": STACK, "wanted": wanted},
            "expect": {"python": python},
        }
    )
    there = Python(
        path="/opt/gpusetup/bin/python3",
        version="3.12",
        ensurepip=True,
        packages={"torch": "2.14.1", "nvidia-nvjitlink": nvjitlink},
    )
    return msgspec.structs.replace(facts, state=told, pythons=(*facts.pythons, there))


def planned(planner, facts, **about):
    plan = planner.first(facts, wishes(**about)).plan
    todo = [action.what for action in plan.actions if action.kind == "python"]
    return tuple(plan.variables.gpu_python_requirements or ()), todo


def test_a_new_environment_has_the_limits(planner, bare):
    assert planned(planner, bare) == (LIMITED, ["torch==2.14.1 in /opt/gpusetup"])


@pytest.mark.parametrize("nvjitlink", ["13.0.88", "13.5.37"])
def test_an_environment_from_before_the_limits_stays_as_it_was_made(planner, bare, nvjitlink):
    assert planned(planner, with_environment(bare, (LINE,), nvjitlink)) == ((LINE,), [])


def test_an_upgrade_brings_the_limits_where_a_wheel_is_beyond_them(planner, bare):
    assert planned(planner, with_environment(bare, (LINE,), "13.0.88"), upgrade=True) == ((LINE,), [])
    lines, todo = planned(planner, with_environment(bare, (LINE,), "13.5.37"), upgrade=True)
    assert lines == LIMITED
    assert todo == ["nvidia-nvjitlink<13.1 in /opt/gpusetup"]


def test_limits_on_record_follow_a_driver_that_is_older_now(planner, bare):
    newer = (LINE, "cuda-bindings<13.4", "nvidia-nvjitlink<13.4")
    assert planned(planner, with_environment(bare, newer, "13.0.88")) == (newer, [])
    assert planned(planner, with_environment(bare, newer, "13.3.73"))[0] == LIMITED


def test_another_wish_is_made_with_its_limits(planner, bare):
    lines, todo = planned(planner, with_environment(bare, ("torch==2.14.0",), "13.5.37"))
    assert lines == LIMITED
    assert todo


def test_what_the_probe_does_not_list_is_judged_by_the_record(bare):
    """A lock with hashes names dozens of packages; the probe tells of the frameworks alone."""
    lines = ("torch==2.14.1 --hash=sha256:aa", "networkx==3.5 --hash=sha256:bb")
    known = {"torch": "2.14.1", "networkx": "3.5"}
    assert lacking(lines, with_environment(bare, lines, "13.0.88", packages=known), wishes()) == []
    changed = with_environment(bare, lines, "13.0.88", packages=known, now="its packages were changed")
    assert lacking(lines, changed, wishes()) == [lines[1]]
    assert lacking(lines, bare, wishes()) == list(lines)


def test_hashes_of_a_lock_hold_whatever_its_limits_are(planner, bare):
    """A host may keep another driver than the one that the lock was made for."""
    hashed = ("torch==2.14.1 --hash=sha256:aa", "nvidia-nvjitlink==13.2.86 --hash=sha256:bb")
    lines = (LINE, "cuda-bindings<13.3", "nvidia-nvjitlink<13.3")
    locked = HashedLines(lines=lines, hashed=hashed, python="3.12", arch="x86_64")
    assert planned(planner, bare, hashed=(locked,))[0] == hashed
