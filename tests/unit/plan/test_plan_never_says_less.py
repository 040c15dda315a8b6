"""A plan never says less than apply does: whatever makes the roles ask for a reboot stands in the plan."""

import msgspec
import pytest

from gpusetup.components import judge
from gpusetup.components.driver.actions import _module
from gpusetup.model.applied import HostRecord
from gpusetup.model.facts import LoadedModule, ModuleUse
from gpusetup.model.plan import Package, PackageSet
from gpusetup.model.settings import Settings
from gpusetup.model.stack import DriverChoice
from gpusetup.plan.actions import _lost

replace = msgspec.structs.replace


@pytest.fixture
def works(host):
    return host("ubuntu24.04-h200-keep")


def planned(facts):
    version = facts.driver.version if facts.driver is not None else None
    choice = DriverChoice(version=str(version), branch="580", module="open", relation="native")
    return {action.id: action for action in _module(judge.probed(facts), choice, Settings())}


def without_module(facts):
    kernels = tuple(replace(item, nvidia=None) for item in facts.kernel.installed)
    return replace(facts, kernel=replace(facts.kernel, installed=kernels))


def not_loaded(facts):
    assert facts.driver is not None
    return replace(facts, driver=replace(facts.driver, loaded=None), modules=(), module_users={}, processes=())


def test_a_driver_that_runs_needs_nothing(works):
    assert planned(works) == {}


def test_module_lost_and_none_loaded_may_end_in_a_reboot_and_the_plan_says_so(works):
    told = planned(not_loaded(without_module(works)))
    assert set(told) == {"module-build", "module-load"}
    assert told["module-load"].reboot
    assert "reboots only if the kernel cannot load the module" in told["module-load"].why


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"simulated": True}, "none is loaded"),
        ({"module_users": {"nvidia": ModuleUse(references=1, holders=("gdrdrv",))}}, "none is loaded"),
    ],
)
def test_what_cannot_be_loaded_at_once_is_a_reboot(works, changes, says):
    told = planned(replace(not_loaded(works), **changes))
    assert set(told) == {"reboot"}
    assert says in told["reboot"].why


def test_the_other_flavour_in_the_kernel_is_a_reboot_as_it_is_for_the_roles(works):
    assert works.driver is not None
    other = LoadedModule(version=works.driver.version, flavour="proprietary")
    told = planned(replace(works, driver=replace(works.driver, loaded=other)))
    assert [action.reboot for action in told.values()] == [True]


def test_a_package_that_came_with_the_driver_and_is_gone_is_work(works):
    installed = {"nvidia-driver": "580.1-1", "nvidia-smi": "580.1-1"}
    record = HostRecord(packages={"nvidia-driver": "580.1-1"}, brought=installed, holds=tuple(installed))
    packages = PackageSet(manager="apt", driver=(Package(name="nvidia-driver", version="580.1-1"),))
    for there, ids in ((installed, []), ({"nvidia-driver": "580.1-1"}, ["install-lost"])):
        facts = replace(works, state=record, packages=replace(works.packages, installed=there))
        assert [action.id for action in _lost(judge.judged(facts), packages)] == ids
