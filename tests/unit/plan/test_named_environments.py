"""Named Python environments, resolved with one driver and made beside each other, and the Python that each is made with."""

import msgspec
import pytest

from gpusetup.components.base import Offers
from gpusetup.components.python.environments import with_one_driver
from gpusetup.components.python.requirements import pythons_of
from gpusetup.errors import BadInputError, NoStackError, PreflightError
from gpusetup.model.facts import Python
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import request_for
from gpusetup.plan.settings import read_level, settings_for
from gpusetup.resolve.requests import parse_requirements
from gpusetup.versions import nv
from tests.hosts.machines import changed, machine
from tests.records import record
from tests.refusals import refused
from tests.unit.plan.conftest import answer, asked, host, planner, resolved

TWO = {"serve": ["vllm==0.19.*"], "train": ["torch==2.14.*"]}


def settings(named=TWO, **about):
    wishes = parse_requirements(["driver"])
    return settings_for(read_level({"environments": named, **about}, "here"), {}, {}, wishes)


facts = host("ubuntu24.04-h200-keep")


def made(planner, facts, wish):
    lock = planner.first(facts, wish).plan.lock
    there = [{"path": item.path, "packages": {}} for item in lock.wanted.environments or ()]
    told = {"schema": "gpusetup/state/1", "lock": msgspec.to_builtins(lock), "expect": {"environments": there}}
    return changed(facts, state=record(told))


def python_actions(planner, facts, wish):
    plan = planner.first(facts, wish).plan
    return {action.id: action.why for action in plan.actions if action.kind == "python"}


@pytest.mark.parametrize(
    ("named", "todo"),
    [
        (TWO, {}),
        ({**TWO, "train": ["torch==2.13.*"]}, {"python-environment-train": "environment train: it holds another set of packages"}),
        ({"serve": TWO["serve"]}, {"python-gone-opt-gpusetup-train": "gpusetup_environments no longer lists it"}),
    ],
)  # fmt: skip
def test_a_second_run_finds_nothing_and_a_change_of_one_leaves_the_other(named, todo):
    assert python_actions(planner, made(planner, facts, settings()), settings(named)) == todo


def test_one_that_was_damaged_is_made_again():
    after = made(planner, facts, settings())
    first, *others = after.state.expect.environments
    damaged = changed(after, state={"expect": {"environments": (changed(first, now="missing"), *others)}})
    assert python_actions(planner, damaged, settings()) == {
        "python-environment-serve": "environment serve: /opt/gpusetup-serve is not as it was installed: missing"
    }


def test_a_driver_that_one_of_them_cannot_have_names_that_one():
    plan = planner.first(facts, settings({"old": ["vllm==0.19.*"], "new": ["torch==2.15.*"]}, driver="570.*")).plan
    assert [refusal.message.partition(":")[0] for refusal in plan.refusals] == ["environment new"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"serve": [7]}, "is not a list of requirements"), ({"serve": {"torch": "2.14"}}, "is not a list of requirements"),
        ({"serve": ["python==3.12"]}, "no package"), ({"serve": ["torch", "driver==580.*"]}, "driver does not belong"),
    ],
)  # fmt: skip
def test_what_is_no_set_of_environments_is_refused_where_it_stands(value, said):
    with refused(BadInputError, "GS-377", message=said):
        settings(value)


class _Chooser:
    """A resolver in which `new` needs driver 590 or newer, and what is `old` leaves every driver but its own."""

    def __init__(self, planner, facts, strict):
        self.known = planner.resolve(request_for(facts, settings()))
        self.strict = strict

    def __call__(self, question):
        names = {item.component for item in question.requirements}
        pinned = next((item.specifier[2:] for item in question.requirements if item.component == "driver"), "")
        own = "590.48.01" if "torch" in names else "580.178.04"
        wanted = pinned or own
        if pinned and pinned != own and ("torch" in names or (self.strict and "vllm" in names)):
            raise NoStackError("GS-200", "no stack fits", note=f"it does not take {pinned}")
        driver = changed(self.known.stack.driver, version=wanted, branch=wanted[:3])
        return changed(self.known, stack={"driver": driver})


def test_of_several_drivers_the_newest_serves_all_or_they_are_refused_by_name():
    wish = settings()
    base = request_for(facts, wish)
    chooser = _Chooser(planner, facts, strict=False)
    own, named = with_one_driver(facts, wish, base, chooser(base), chooser)
    assert {item.stack.driver.version for item in (own, *named.values())} == {"590.48.01"}
    chooser = _Chooser(planner, facts, strict=True)
    with refused(NoStackError, "GS-378", note="serve takes 580.178.04, train takes 590.48.01") as caught:
        with_one_driver(facts, wish, base, chooser(base), chooser)
    assert "environment serve: no stack fits" in caught.value.note


NAMES = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms", "dkms")


def wishes(*texts, **fields):
    return asked(*texts, cuda_from="wheels", **fields)


rocky = machine("rocky9-a100-open", firmware={"uefi": False}, secure_boot=False)


def second(wish, *pythons, facts=rocky):
    """Plan with repositories that have a driver for every row, and packages of these Pythons."""
    newest = resolved(gpus=("a100",), os=rocky.os.label).stack.driver.version
    rows = [(name, newest) for name in NAMES]
    rows += [(f"python{one}{part}", new) for one in pythons for part, new in (("", f"{one}.7"), ("-pip", "23.2"))]
    return planner.second(facts, wish, answer([], *((name, f"{version}-1.el9") for name, version in rows))).plan


def beside(facts, *more):
    return changed(facts, pythons=(*facts.pythons, *more))


def test_a_newer_python_comes_in_the_same_transaction_and_makes_the_environment():
    plan = second(wishes("torch"), "3.12", "3.11")
    assert plan.state == "change", plan.refusals
    assert plan.variables.gpu_python_interpreter == "/usr/bin/python3.12"
    brought = [package.name for package in plan.variables.gpu_packages_prerequisites]
    assert {"python3.12", "python3.12-pip"} <= set(brought)
    (action,) = [action for action in plan.actions if action.id == "install-python"]
    assert ("python3.12" in action.what, "base Python is too old" in action.why) == (True, True)
    assert any("base Python is 3.9" in reason.text for reason in plan.reasons)
    assert plan.lock.wanted.interpreter == "/usr/bin/python3.12"
    assert "python3.12" in str(plan.lock.wanted.packages.python)
    again = planner.recorded(rocky, wishes("torch"), plan.lock).plan
    assert again.variables.gpu_python_interpreter == "/usr/bin/python3.12", "planned from its record"


def test_only_pythons_that_the_repositories_have_count():
    eleven, none = second(wishes("torch"), "3.11"), second(wishes("torch"))
    assert eleven.variables.gpu_python_interpreter == "/usr/bin/python3.11"
    assert (none.variables.gpu_python_interpreter, none.stack.python.version) == ("", "3.9")
    assert nv(eleven.stack.torch.version) > nv(none.stack.torch.version)


def test_a_python_that_is_nowhere_is_refused_with_the_way_out():
    note, hint = "it packages 3.12, 3.11", "uv python install 3.13"
    with refused(PreflightError, "GS-334", note=note, hint=hint):
        planner.first(rocky, wishes("torch", "python==3.13"))
    named = Python(path="/opt/python/bin/python3.13", version="3.13", ensurepip=True)
    plan = second(wishes("torch", "python==3.13"), "3.12", facts=beside(rocky, named))
    assert plan.variables.gpu_python_interpreter == named.path


def test_a_named_interpreter_decides_the_stack():
    named = Python(path="/opt/python/bin/python3.11", version="3.11", ensurepip=True)
    plan = second(wishes("torch", python_interpreter=named.path), "3.12", facts=beside(rocky, named))
    assert (plan.variables.gpu_python_interpreter, plan.stack.python.version) == (named.path, "3.11")
    assert "python3.12" not in str(plan.variables.gpu_packages_prerequisites)


def test_an_environment_of_another_python_is_made_anew():
    plan = second(wishes("torch"), "3.12")
    pin = next(line for line in plan.variables.gpu_python_requirements if line.startswith("torch=="))
    packages = {"torch": pin.partition("==")[2]}
    for python, wanted in (("3.9", True), ("3.12", False)):
        old = Python(path="/opt/gpusetup/bin/python3", version=python, ensurepip=True, packages=packages)
        actions = planner.recorded(beside(rocky, old), wishes("torch"), plan.lock).plan.actions
        assert ("python-packages" in [action.id for action in actions]) is wanted


def test_a_host_of_an_unknown_distribution_tells_its_python_itself():
    kylin = host("rocky9-a100-open", os={"id": "kylin", "version_id": "V11"})
    assert pythons_of(kylin, Settings(), None, Offers(None)) == ("3.9",)
    assert pythons_of(changed(kylin, pythons=()), Settings(), None, Offers(None)) is None
