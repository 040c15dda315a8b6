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
from tests.hosts.machines import changed, machine

replace = msgspec.structs.replace


WORKS = machine("ubuntu24.04-h200-keep")
NOT_LOADED = {"driver": {"loaded": None}, "modules": (), "module_users": {}, "processes": ()}
NO_MODULE = {"kernel": {"installed": tuple(changed(item, nvidia=None) for item in WORKS.kernel.installed)}}
HELD = {"nvidia": ModuleUse(references=1, holders=("gdrdrv",))}


@pytest.mark.parametrize(
    ("parts", "ids", "says"),
    [
        ({}, [], ""),
        (NOT_LOADED | NO_MODULE, ["module-build", "module-load"], "reboots only if the kernel cannot load the module"),
        (NOT_LOADED | {"simulated": True}, ["reboot"], "none is loaded"),
        (NOT_LOADED | {"module_users": HELD}, ["reboot"], "none is loaded"),
        (
            {"driver": {"loaded": LoadedModule(version=WORKS.driver.version, flavour="proprietary")}},
            ["module-load"],
            "",
        ),
    ],
)
def test_a_reboot_that_the_roles_may_ask_for_stands_in_the_plan(parts, ids, says):
    choice = DriverChoice(version=WORKS.driver.version, branch="580", module="open", relation="native")
    told = list(_module(judge.probed(changed(WORKS, **parts)), choice, Settings()))
    assert [action.id for action in told] == ids
    assert not told or (told[-1].reboot and says in told[-1].why)


def test_a_package_that_came_with_the_driver_and_is_gone_is_work():
    installed = {"nvidia-driver": "580.1-1", "nvidia-smi": "580.1-1"}
    record = HostRecord(packages={"nvidia-driver": "580.1-1"}, brought=installed, holds=tuple(installed))
    packages = PackageSet(manager="apt", driver=(Package(name="nvidia-driver", version="580.1-1"),))
    for there, ids in ((installed, []), ({"nvidia-driver": "580.1-1"}, ["install-lost"])):
        facts = changed(WORKS, state=record, packages={"installed": there})
        assert [action.id for action in _lost(judge.judged(facts), packages)] == ids
