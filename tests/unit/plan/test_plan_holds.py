"""What a plan keeps from moving: a driver of ours, the kernel, services and an adopted Python as they are."""

import msgspec
from msgspec import UNSET

from gpusetup.model.applied import HostRecord
from gpusetup.model.facts import Python, Service
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.resolve.requests import parse_requirement
from tests.unit.plan.test_plan_host import DISTRO, DRIVER, planned


def adopted(host, **packages):
    facts = host("ubuntu24.04-h200x8-keep")
    python = facts.pythons[0] if facts.pythons else None
    named = Python(path="/opt/ai/bin/python", version="3.12", ensurepip=False, packages=packages)
    return msgspec.structs.replace(facts, pythons=(*((python,) if python else ()), named))


def test_an_adopted_python_is_taken_as_it_is_and_nothing_is_fetched(planner, host):
    packages = {
        "cupy-cuda12x": "13.6.0",
        "torch": "2.8.0",
        "nvidia-cuda-runtime-cu12": "12.8.90",
        "nvidia-cudnn-cu12": "9.10.2.21",
    }
    facts = adopted(host, **packages)
    draft = planner.first(facts, Settings(python_adopt="/opt/ai/bin/python"))
    assert draft.stage == "final", draft.plan.refusals
    assert draft.plan.state == "unchanged", draft.plan.refusals
    assert draft.plan.stack.driver.installed
    assert draft.plan.stack.cupy.version == "13.6.0"
    assert draft.plan.variables.gpu_python_adopt == "/opt/ai/bin/python"
    assert draft.plan.variables.gpu_python_requirements == ("cupy-cuda12x==13.6.0",)
    assert draft.plan.variables.gpu_driver_packages is UNSET


def test_adopting_what_is_not_there_is_refused(planner, host):
    plan = planner.first(host("ubuntu24.04-h200x8-keep"), Settings(python_adopt="/opt/nowhere/bin/python")).plan
    assert [refusal.reference for refusal in plan.refusals] == ["GS-330"]


def test_a_python_that_others_can_change_is_not_adopted(planner, host):
    facts = host("ubuntu24.04-h200x8-keep")
    theirs = Python(path="/home/eve/bin/python", version="", ensurepip=False, changeable="/home/eve")
    facts = msgspec.structs.replace(facts, pythons=(theirs,))
    plan = planner.first(facts, Settings(python_adopt="/home/eve/bin/python")).plan
    assert [refusal.reference for refusal in plan.refusals] == ["GS-337"]
    assert "/home/eve" in plan.refusals[0].message


def test_a_service_that_is_enabled_needs_no_change(planner, host, nvidia_ubuntu):
    """Facts name services by what they are for; the unit is what counts, else every second run would work again."""
    machine = "ubuntu24.04-h200x8-fabricmanager"
    unit = Service(unit="nvidia-fabricmanager.service", active="active", enabled="enabled")
    wanted = Settings(requirements=(Requirement(component="driver", specifier="==580.178.04"),))

    def services(**seen):
        plan = planned(planner, host(machine, driver=None, services=seen), wanted, nvidia_ubuntu)
        return {action.id for action in plan.actions if action.kind == "service"}

    assert "service-nvidia-fabricmanager" in services()
    assert "service-nvidia-fabricmanager" not in services(fabricmanager=unit)
    off = msgspec.structs.replace(unit, enabled="disabled")
    assert "service-nvidia-fabricmanager" in services(fabricmanager=off)


def test_the_kernel_is_held_on_request_and_freed_again(planner, host, debian12_archive):
    wish = msgspec.structs.replace(DISTRO, hold_kernel=True)
    facts = host("debian12-t4-open", driver=None)
    kernel = {"linux-image-amd64": "6.1.170-1", "linux-headers-amd64": "6.1.170-1"}
    there = msgspec.structs.replace(facts.packages, installed=facts.packages.installed | kernel, held=())
    facts = msgspec.structs.replace(facts, packages=there)
    plan = planned(planner, facts, wish, debian12_archive)
    assert "hold-kernel" in [action.id for action in plan.actions]
    assert {"linux-image*", "linux-headers*"} <= set(plan.variables.gpu_packages_hold)
    assert not [name for pin in plan.variables.gpu_repo_pins for name in pin.packages if "linux" in name]

    without = planned(planner, facts, DISTRO, debian12_archive)
    assert "hold-kernel" not in [action.id for action in without.actions]
    held = msgspec.structs.replace(there, held=tuple(kernel))
    facts = msgspec.structs.replace(facts, packages=held, state=HostRecord(holds=tuple(sorted(kernel))))
    freed = next(
        item for item in planned(planner, facts, DISTRO, debian12_archive).actions if item.id == "hold-release"
    )
    assert "linux-image-amd64" in freed.what
    assert "hold-release" not in [item.id for item in planned(planner, facts, wish, debian12_archive).actions]


def test_a_driver_of_ours_stays_held_when_something_else_is_asked_too(planner, host, nvidia_ubuntu):
    """It works and fits, so it is kept; its packages, holds and pins stay those that were applied."""
    keep = host("ubuntu24.04-h200-keep")
    first = planned(planner, msgspec.structs.replace(keep, driver=None), DRIVER, nvidia_ubuntu)
    version = first.stack.driver.version
    there = {item.name: item.version for item in first.variables.gpu_driver_packages}
    packages = msgspec.structs.replace(keep.packages, installed=keep.packages.installed | there, held=tuple(there))
    loaded = msgspec.structs.replace(keep.driver.loaded, version=version)
    driver = msgspec.structs.replace(keep.driver, version=version, loaded=loaded, library=version, module=version)
    state = HostRecord(lock=first.lock, holds=tuple(sorted(there)))
    applied = msgspec.structs.replace(keep, packages=packages, driver=driver, state=state)
    more = Settings(requirements=(parse_requirement("driver"), parse_requirement("torch")))
    second = planned(planner, applied, more, nvidia_ubuntu)
    assert second.stack.driver.installed
    assert second.stack.driver.version == first.stack.driver.version
    for name in ("gpu_driver_packages", "gpu_driver_version", "gpu_packages_hold", "gpu_repo_pins", "gpu_repo_sources"):
        assert getattr(second.variables, name) == getattr(first.variables, name), name
    assert "install-driver" not in [action.id for action in second.actions]

    foreign = planned(planner, msgspec.structs.replace(applied, state=None), more, nvidia_ubuntu)
    assert foreign.variables.gpu_driver_packages is UNSET, "somebody else's is left alone"
