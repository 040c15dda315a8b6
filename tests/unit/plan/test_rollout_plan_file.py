"""`apply --plan`: only the host that the plan was made for is changed by it."""

import msgspec
import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.model.plan import Plan
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.stack import MatrixStamp
from gpusetup.rollout.looks import Rollout, _first
from gpusetup.rollout.options import Planning

WISH = Settings(requirements=(Requirement(component="driver", specifier="==580.*"),))


@pytest.fixture
def made(planner, host, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    plan = planner.second(facts, WISH, nvidia_ubuntu).plan
    return facts, Plan(matrix=MatrixStamp(date="", digest=""), hosts={"a": plan})


def looked(facts, settings):
    return Rollout(None, matrix(), None, facts={"a": facts}, settings={"a": settings})


def test_the_plan_of_this_host_is_carried_out(planner, made):
    facts, plan = made
    draft = _first(planner, looked(facts, WISH), "a", Planning(made=plan))
    assert (draft.stage, draft.plan) == ("transaction", plan.hosts["a"])


def test_other_wishes_or_another_kernel_are_not(planner, made):
    facts, plan = made
    other = msgspec.structs.replace(WISH, persistence=False)
    kernel = msgspec.structs.replace(facts, kernel=msgspec.structs.replace(facts.kernel, next="6.8.0-99-generic"))
    for rollout in (looked(facts, other), looked(kernel, WISH)):
        with pytest.raises(BadInputError) as caught:
            _first(planner, rollout, "a", Planning(made=plan))
        assert caught.value.reference == "GS-411"


def test_more_care_with_reboots_is_no_other_wish(planner, made):
    facts, plan = made
    careful = msgspec.structs.replace(WISH, reboot="never")
    draft = _first(planner, looked(facts, careful), "a", Planning(made=plan))
    assert draft.plan == plan.hosts["a"]
