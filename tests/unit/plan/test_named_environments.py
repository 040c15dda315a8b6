"""Named Python environments: read strictly, resolved with one driver, made beside each other, each with its reasons."""

import msgspec
import pytest

from gpusetup.components.python.environments import PYTHON, with_one_driver
from gpusetup.errors import BadInputError, NoStackError
from gpusetup.model.applied import SCHEMA, HostRecord
from gpusetup.model.facts import HostFacts
from gpusetup.plan.lifecycle import choose, removal_of
from gpusetup.plan.requests import request_for
from gpusetup.plan.settings import read_level, settings_for
from gpusetup.resolve.requests import parse_requirements
from tests.records import record

TWO = {"serve": ["vllm==0.19.*"], "train": ["torch==2.14.*"]}


def settings(named=TWO, **about):
    wishes = parse_requirements(["driver"])
    return settings_for(read_level({"environments": named, **about}, "here"), {}, {}, wishes)


@pytest.fixture
def facts(host):
    found: HostFacts = host("ubuntu24.04-h200-keep")
    return found


def made(planner, facts, wish):
    plan = planner.first(facts, wish).plan
    there = [{"path": item.path, "packages": {}} for item in plan.lock.wanted.environments or ()]
    lock = msgspec.to_builtins(plan.lock)
    told = record({"schema": "gpusetup/state/1", "lock": lock, "expect": {"environments": there}})
    return msgspec.structs.replace(facts, state=told)


def python_actions(planner, facts, wish):
    plan = planner.first(facts, wish).plan
    return {action.id: action.why for action in plan.actions if action.kind == "python"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"../etc": ["torch"]}, "cannot name an environment"), ({"Serve": ["torch"]}, "cannot name an environment"),
        ({"a/b": ["torch"]}, "cannot name an environment"), ({"-x": ["torch"]}, "cannot name an environment"),
        ({7: ["torch"]}, "cannot name an environment"), ({"a" * 33: ["torch"]}, "cannot name an environment"),
        ({"serve": []}, "no package"), ({"serve": ["python==3.12"]}, "no package"),
        ({"serve": [7]}, "is not a list of requirements"),
        ({"serve": {"torch": "2.14"}}, "is not a list of requirements"),
        ({"serve": ["torch", "driver==580.*"]}, "driver does not belong"),
        ({"serve": ["torch", "cuda==12.8"]}, "cuda does not belong"), (["torch"], "is not a mapping"),
        ("{serve", "is not a mapping"),
    ],
)  # fmt: skip
def test_what_is_no_set_of_environments_is_refused_where_it_stands(value, said):
    with pytest.raises(BadInputError) as caught:
        PYTHON.settings["environments"](value, "h1: gpusetup_environments")
    assert caught.value.reference == "GS-377"
    assert said in caught.value.message
    assert caught.value.path.startswith("h1: gpusetup_environments")


def test_requirements_are_read_by_the_parser_of_the_command_line():
    with pytest.raises(BadInputError) as caught:
        PYTHON.settings["environments"]({"serve": ["vlm"]}, "gpusetup_environments")
    assert caught.value.reference == "GS-110"
    assert caught.value.path == "gpusetup_environments[serve]"
    (read,) = PYTHON.settings["environments"]('{"serve": ["pytorch 2.14", "trl"]}', "x")
    assert [str(item) for item in read.requirements] == ["trl", "torch==2.14.*"]
    assert PYTHON.settings["environments"]("", "x") == ()


def test_each_is_made_beside_the_default_with_a_reason(planner, facts):
    plan = planner.first(facts, settings()).plan
    assert plan.state == "change", plan.refusals
    told = {item.name: item for item in plan.variables.gpu_python_environments or ()}
    assert {name: item.path for name, item in told.items()} == {
        "serve": "/opt/gpusetup-serve",
        "train": "/opt/gpusetup-train",
    }
    assert any(line.startswith("vllm==0.19.") for line in told["serve"].requirements)
    assert any(line.startswith("torch==2.14.") for line in told["train"].requirements)
    assert python_actions(planner, facts, settings()) == {
        "python-environment-serve": "environment serve: it does not exist yet",
        "python-environment-train": "environment train: it does not exist yet",
    }
    assert {reason.text.partition(":")[0] for reason in plan.reasons} >= {"environment serve", "environment train"}
    stacks = [item.stack.driver.version for item in plan.lock.wanted.environments]
    assert set(stacks) == {plan.stack.driver.version}, "one driver for all"


def test_a_second_run_finds_nothing_and_a_change_of_one_leaves_the_other(planner, facts):
    after = made(planner, facts, settings())
    assert python_actions(planner, after, settings()) == {}
    moved = settings({**TWO, "train": ["torch==2.13.*"]})
    assert python_actions(planner, after, moved) == {
        "python-environment-train": "environment train: it holds another set of packages"
    }
    fewer = settings({"serve": TWO["serve"]})
    assert python_actions(planner, after, fewer) == {
        "python-gone-opt-gpusetup-train": "gpusetup_environments no longer lists it"
    }


def test_one_that_was_damaged_is_made_again(planner, facts):
    after = made(planner, facts, settings())
    first, *others = after.state.expect.environments
    expect = msgspec.structs.replace(
        after.state.expect, environments=(msgspec.structs.replace(first, now="missing"), *others)
    )
    damaged = msgspec.structs.replace(after, state=msgspec.structs.replace(after.state, expect=expect))
    assert python_actions(planner, damaged, settings()) == {
        "python-environment-serve": "environment serve: /opt/gpusetup-serve is not as it was installed: missing"
    }


def test_the_default_environment_is_as_without_them(planner, facts):
    wish = settings_for({}, {}, {}, parse_requirements(["torch==2.14.*"]))
    named = msgspec.structs.replace(wish, environments=settings().environments)
    alone, beside = (planner.first(facts, item).plan.variables for item in (wish, named))
    assert alone.gpu_python_requirements == beside.gpu_python_requirements
    assert alone.gpu_python_path == beside.gpu_python_path == "/opt/gpusetup"
    assert alone.gpu_python_environments is msgspec.UNSET


def test_a_driver_that_one_of_them_cannot_have_names_that_one(planner, facts):
    plan = planner.first(facts, settings({"old": ["vllm==0.19.*"], "new": ["torch==2.15.*"]}, driver="570.*")).plan
    (refusal,) = plan.refusals
    assert refusal.message.startswith("environment new:")
    assert refusal.exit == 4
    assert plan.state == "refused"


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
        driver = msgspec.structs.replace(self.known.stack.driver, version=wanted, branch=wanted[:3])
        return msgspec.structs.replace(self.known, stack=msgspec.structs.replace(self.known.stack, driver=driver))


def test_of_several_drivers_the_newest_serves_all(planner, facts):
    wish = settings()
    chooser = _Chooser(planner, facts, strict=False)
    base = request_for(facts, wish)
    own, named = with_one_driver(facts, wish, base, chooser(base), chooser)
    assert {item.stack.driver.version for item in (own, *named.values())} == {"590.48.01"}


def test_environments_that_no_driver_serves_together_are_refused_by_name(planner, facts):
    wish = settings()
    chooser = _Chooser(planner, facts, strict=True)
    base = request_for(facts, wish)
    with pytest.raises(NoStackError) as caught:
        with_one_driver(facts, wish, base, chooser(base), chooser)
    assert caught.value.reference == "GS-378"
    assert "serve takes 580.178.04, train takes 590.48.01" in caught.value.note
    assert "environment serve: no stack fits" in caught.value.note


def test_a_rollback_goes_back_to_other_environments(planner, facts):
    from gpusetup.model.lifecycle import Past

    verified = {"verdict": "pass", "key": "x"}
    applies = []
    for number, named in enumerate((TWO, {"serve": TWO["serve"]})):
        lock = msgspec.to_builtins(planner.first(facts, settings(named)).plan.lock)
        applies.append(msgspec.convert({"id": str(number), "lock": lock, "verified": verified, "packages": {}}, Past))
    assert applies[0].lock.schema == SCHEMA
    assert choose(tuple(applies), "1").id == "0"


def test_removal_names_them(facts):
    expect = {"environments": [{"path": "/opt/gpusetup-serve"}], "python": {"path": "/opt/new"}}
    told = msgspec.convert({"expect": expect, "environments": {"/opt/new": None, "/opt/old": None}}, HostRecord)
    found = removal_of(msgspec.structs.replace(facts, state=told))
    assert found is not None
    assert (found.python, found.environments) == ("/opt/new", ("/opt/gpusetup-serve", "/opt/old"))
