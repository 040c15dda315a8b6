"""Several toolkits on one host: their packages, their places, and what goes when one is no longer asked for."""

import msgspec
import pytest

from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import SCHEMA, Applied, HostRecord
from gpusetup.model.facts import Cuda
from gpusetup.model.package import CudaRoot, PackageSet
from gpusetup.model.request import Request, Requirement
from gpusetup.model.settings import AppliedWanted, Settings
from gpusetup.model.stack import DriverChoice, Stack, exact_requirements
from gpusetup.plan.install import dockerfile
from gpusetup.plan.settings import read_level
from gpusetup.resolve.api import resolve

BOTH = Requirement(component="cuda", specifier="==12.9.*", beside=("==13.0.*",))
ROOTS = tuple(CudaRoot(version=minor, path=f"/usr/local/cuda-{minor}") for minor in ("12.9", "13.0"))


def planned(planner, facts, settings, answer):
    draft = planner.second(facts, settings, answer)
    assert draft.plan.refusals == ()
    return draft.plan


def applied(facts, *brought):
    wanted = AppliedWanted(
        packages=PackageSet(manager="apt", cuda_roots=ROOTS, cuda_default="12.9"),
        manage_driver=False, requirements=(), adopted=(), services=(),
    )  # fmt: skip
    state = HostRecord(lock=Applied(key="k", wanted=wanted), brought=dict.fromkeys(brought, "1"))
    return msgspec.structs.replace(facts, state=state)


def test_each_has_its_package_and_its_place_and_the_first_is_the_default(host, planner, nvidia_ubuntu):
    plan = planned(
        planner, host("ubuntu24.04-rtx4090-open", driver=None), Settings(requirements=(BOTH,)), nvidia_ubuntu
    )
    names = [package.name for package in plan.variables.gpu_cuda_packages]
    assert names == ["cuda-toolkit-12-9", "cuda-toolkit-13-0"]
    assert plan.variables.gpu_cuda_roots == ROOTS
    assert plan.variables.gpu_cuda_default == "12.9"
    (default,) = [action for action in plan.actions if action.id == "service-cuda-default"]
    assert default.what == "/usr/local/cuda is /usr/local/cuda-12.9"
    assert next(item for item in exact_requirements(plan.stack) if item.component == "cuda").beside == (
        f"=={plan.stack.cudas[0].version}",
    )


def test_a_default_that_is_set_needs_no_action(host, planner, nvidia_ubuntu):
    there = Cuda(default="/usr/local/cuda-12.9")
    facts = host("ubuntu24.04-rtx4090-open", driver=None, cuda=there)
    plan = planned(planner, facts, Settings(requirements=(BOTH,)), nvidia_ubuntu)
    assert not [action for action in plan.actions if action.id == "service-cuda-default"]


def test_one_that_is_no_longer_asked_for_goes_and_touches_no_other(host, planner, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    ours = (
        "cuda-toolkit-12-9",
        "libcublas-12-9",
        "cuda-toolkit-13-0",
        "libcublas-13-0",
        "cuda-toolkit-13-0-config-common",
        "libnccl2",
    )
    only = Settings(requirements=(Requirement(component="cuda", specifier="==12.9.*"),))
    plan = planned(planner, applied(facts, *ours), only, nvidia_ubuntu)
    gone = {"libcublas-13-0", "cuda-toolkit-13-0", "cuda-toolkit-13-0-config-common"}
    assert gone <= set(plan.variables.gpu_packages_remove)
    assert gone <= set(plan.variables.gpu_packages_may_remove)
    assert not {"libcublas-12-9", "libnccl2"} & set(plan.variables.gpu_packages_remove)


def test_one_that_went_may_come_again(host, planner, nvidia_ubuntu):
    """What a record says must go is not what a later wish asks for."""
    facts = host("ubuntu24.04-h200-keep")
    went = ("cuda-toolkit-13-0", "libcublas-13-0")
    choice = DriverChoice(version=facts.driver.version, branch="0", module="open", relation="native")
    packages = PackageSet(manager="apt", remove=went, may_remove=went, cuda_roots=ROOTS[:1], cuda_default="12.9")
    wanted = AppliedWanted(packages=packages, manage_driver=True, requirements=(), adopted=(), services=())
    lock = Applied(key="k", stack=Stack(driver=choice), wanted=wanted)
    facts = msgspec.structs.replace(facts, state=HostRecord(schema=SCHEMA, lock=lock))
    plan = planned(planner, facts, Settings(requirements=(BOTH,)), nvidia_ubuntu)
    assert not set(went) & set(plan.variables.gpu_packages_remove)


def test_while_both_are_asked_for_none_goes(host, planner, nvidia_ubuntu):
    facts = applied(host("ubuntu24.04-rtx4090-open", driver=None), "cuda-toolkit-12-9", "cuda-toolkit-13-0")
    plan = planned(planner, facts, Settings(requirements=(BOTH,)), nvidia_ubuntu)
    assert not {"cuda-toolkit-12-9", "cuda-toolkit-13-0"} & set(plan.variables.gpu_packages_remove)


def test_an_image_holds_one_toolkit():
    request = Request(requirements=(BOTH,), gpus=("h100",), os="ubuntu24.04")
    lines, note = dockerfile(resolve(request, matrix()).stack, request, matrix())
    assert (lines, note) == ((), "an NVIDIA image holds one toolkit: ask for one CUDA")


def test_wheels_cannot_bring_several(host, planner, nvidia_ubuntu):
    with pytest.raises(PreflightError) as caught:
        planner.second(
            host("ubuntu24.04-rtx4090-open", driver=None),
            Settings(requirements=(BOTH,), cuda_from="wheels"),
            nvidia_ubuntu,
        )
    assert "side by side only as packages" in caught.value.message


@pytest.mark.parametrize("value", [["12.9", "13.0"], '["12.9", "13.0"]', ["==12.9.*", "13.0"]])
def test_an_inventory_names_them_in_a_list(value):
    assert read_level({"gpusetup_cuda": value}, "host h", prefix="gpusetup_")["versions"]["cuda"] == BOTH


def test_a_list_of_one_is_one():
    level = read_level({"gpusetup_cuda": ["12.9"]}, "host h", prefix="gpusetup_")
    assert level["versions"]["cuda"] == Requirement(component="cuda", specifier="==12.9.*")


@pytest.mark.parametrize(
    "value",
    [["12.9", "12.9.1"], ["12", "13"], ["12.9", "latest"], ["12.9", "none"], [">=12.9", "13.0"], ["12.9", "lots"]],
)
def test_a_list_that_does_not_name_different_toolkits_is_refused(value):
    with pytest.raises(BadInputError) as caught:
        read_level({"gpusetup_cuda": value}, "host h", prefix="gpusetup_")
    assert "gpusetup_cuda" in str(caught.value.path)
