"""Facts, plan, drift, doctor and resolver say the same: where apply refuses, never `apply`; where it reboots, a reboot."""

import pytest

from gpusetup.cli.drift import _compared
from gpusetup.cli.main import main
from gpusetup.components import judge
from gpusetup.components.driver.actions import _module
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord
from gpusetup.model.facts import LoadedModule, ModuleUse
from gpusetup.model.plan import Package, PackageSet
from gpusetup.model.settings import Settings
from gpusetup.model.stack import DriverChoice
from gpusetup.plan.actions import _lost
from gpusetup.plan.preflight import apply_refused
from gpusetup.resolve.api import resolve
from tests.hosts.machines import HOSTS, changed, machine
from tests.unit.plan.conftest import DRIVER, planner

WSL, VGPU = "ubuntu22.04-wsl-refused", "ubuntu22.04-l4vgpu-grid"
CONTAINER, TWO = "debian12-t4-container-refused", "ubuntu24.04-gtx1080ti-rtx5090-nostack"


@pytest.mark.parametrize(
    ("name", "reference", "said"), [(WSL, "GS-322", "driver of Windows"), (VGPU, "GS-323", "vGPU"), (TWO, "GS-210", "")]
)
def test_nobody_is_told_to_apply_where_apply_refuses(name, reference, said, capsys):
    refusal = apply_refused(machine(name), matrix(), resolve)
    assert (refusal.reference, said in refusal.message) == (reference, True)
    if name != WSL:  # no GPU is on PCI there: drift has nothing to compare
        compared = _compared(machine(name), "localhost", None)
        assert (compared.state, compared.mend, compared.refusals[0].reference) == ("not-applied", "", reference)
    assert planner.first(machine(name), DRIVER).plan.state == "refused"
    main(["doctor", "--root", str(HOSTS / name / "root")])
    assert "gpusetup apply" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ubuntu24.04-rtx4090-open", "ubuntu24.04-h200x8-keep", CONTAINER])
def test_other_machines_are_told_to_apply_and_a_container_without_a_driver_is_sent_to_its_host(name):
    assert apply_refused(machine(name), matrix(), resolve) is None
    alone = apply_refused(machine(name, driver=None), matrix(), resolve)
    assert (alone is not None and "host that starts the container" in alone.hint) is (name == CONTAINER)


def test_resolve_never_chooses_a_linux_driver_for_wsl(tmp_path, capsys, printed, says):
    facts = str(tmp_path / "facts.json")
    assert main(["facts", "--root", str(HOSTS / WSL / "root"), "--format", "json", "--out", facts]) == 0
    asked = ["resolve", "torch", "--from", facts]
    assert main(asked) == 5
    text = capsys.readouterr().out
    assert "this is WSL, which uses the driver of Windows" in text
    assert "hint: install or update NVIDIA's driver on Windows" in text
    told = printed(5, *asked)
    assert (told["ok"], *(answer["error"]["reference"] for answer in told["classes"].values())) == (False, "GS-322")
    asked += ["--driver", "580.178.04"]
    (told,) = printed(0, *asked)["classes"].values()
    assert told["stack"]["driver"]["version"] == "580.178.04"
    assert any("that of Windows" in warning for warning in told["warnings"])
    assert "gpusetup apply" not in says(0, *asked)


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
