"""What a plan keeps from moving: a driver of ours, the kernel, services and an adopted Python as they are."""

import pytest
from msgspec import UNSET

from gpusetup.model.applied import HostRecord
from gpusetup.model.facts import Python, Service
from gpusetup.model.settings import Settings
from tests.hosts.machines import changed
from tests.unit.plan.conftest import DRIVER, asked
from tests.unit.plan.test_plan_host import DISTRO, NEWEST, SWITCHED, T4, planned, with_installed

EIGHT = "ubuntu24.04-h200x8-keep"


def test_an_adopted_python_is_taken_as_it_is_and_nothing_is_fetched(planner, host):
    packages = {
        "cupy-cuda12x": "13.6.0", "torch": "2.8.0", "nvidia-cuda-runtime-cu12": "12.8.90",
        "nvidia-cudnn-cu12": "9.10.2.21",
    }  # fmt: skip
    named = Python(path="/opt/ai/bin/python", version="3.12", ensurepip=False, packages=packages)
    draft = planner.first(host(EIGHT, pythons=(*host(EIGHT).pythons[:1], named)), Settings(python_adopt=named.path))
    assert (draft.stage, draft.plan.state) == ("final", "unchanged"), draft.plan.refusals
    assert (draft.plan.stack.driver.installed, draft.plan.stack.cupy.version) == (True, "13.6.0")
    assert draft.plan.variables.gpu_python_adopt == named.path
    assert draft.plan.variables.gpu_python_requirements == ("cupy-cuda12x==13.6.0",)
    assert draft.plan.variables.gpu_driver_packages is UNSET


@pytest.mark.parametrize(
    ("there", "reference"),
    [
        ((), "GS-330"),
        ((Python(path="/home/eve/bin/python", version="", ensurepip=False, changeable="/home/eve"),), "GS-337"),
    ],
)
def test_a_python_that_is_not_there_or_that_others_can_change_is_not_adopted(planner, host, there, reference):
    plan = planner.first(host(EIGHT, pythons=there), Settings(python_adopt="/home/eve/bin/python")).plan
    assert [refusal.reference for refusal in plan.refusals] == [reference]
    assert "/home/eve" in plan.refusals[0].message


@pytest.mark.parametrize(("enabled", "todo"), [(None, True), ("enabled", False), ("disabled", True)])
def test_a_service_that_is_enabled_needs_no_change(planner, nvidia_ubuntu, enabled, todo):
    """Facts name services by what they are for; the unit is what counts, else every second run would work again."""
    unit = Service(unit="nvidia-fabricmanager.service", active="active", enabled=enabled or "")
    facts = changed(SWITCHED, services={"fabricmanager": unit} if enabled else {})
    plan = planned(planner, facts, NEWEST, nvidia_ubuntu)
    assert ("service-nvidia-fabricmanager" in {action.id for action in plan.actions}) is todo


def test_the_kernel_is_held_on_request_and_freed_again(planner, debian12_archive):
    def plan(wish, *held):
        state = HostRecord(holds=tuple(sorted(held))) if held else T4.state
        made = planned(planner, changed(facts, packages={"held": held}, state=state), wish, debian12_archive)
        return made.variables, {action.id: action.what for action in made.actions}

    kernel = {"linux-image-amd64": "6.1.170-1", "linux-headers-amd64": "6.1.170-1"}
    facts, wish = with_installed(T4, kernel), changed(DISTRO, hold_kernel=True)
    variables, todo = plan(wish)
    assert "hold-kernel" in todo
    assert {"linux-image*", "linux-headers*"} <= set(variables.gpu_packages_hold)
    assert not [name for pin in variables.gpu_repo_pins for name in pin.packages if "linux" in name]
    assert "hold-kernel" not in plan(DISTRO)[1]
    assert "linux-image-amd64" in plan(DISTRO, *kernel)[1]["hold-release"]
    assert "hold-release" not in plan(wish, *kernel)[1]


def test_a_driver_of_ours_stays_held_when_something_else_is_asked_too(planner, host, nvidia_ubuntu):
    """It works and fits, so it is kept; its packages, holds and pins stay those that were applied."""
    keep = host("ubuntu24.04-h200-keep")
    first = planned(planner, changed(keep, driver=None), DRIVER, nvidia_ubuntu)
    version = first.stack.driver.version
    there = {item.name: item.version for item in first.variables.gpu_driver_packages}
    driver = {"version": version, "loaded": {"version": version}, "library": version, "module": version}
    state = HostRecord(lock=first.lock, holds=tuple(sorted(there)))
    applied = changed(with_installed(keep, there), packages={"held": tuple(there)}, driver=driver, state=state)
    second = planned(planner, applied, asked("driver", "torch"), nvidia_ubuntu)
    assert (second.stack.driver.installed, second.stack.driver.version) == (True, version)
    for name in ("gpu_driver_packages", "gpu_driver_version", "gpu_packages_hold", "gpu_repo_pins", "gpu_repo_sources"):
        assert getattr(second.variables, name) == getattr(first.variables, name), name
    assert "install-driver" not in [action.id for action in second.actions]
    foreign = planned(planner, changed(applied, state=None), asked("driver", "torch"), nvidia_ubuntu)
    assert foreign.variables.gpu_driver_packages is UNSET, "somebody else's is left alone"
