"""What was applied stays until --upgrade, `latest` or a wish that it does not meet; what is brought is held."""

import pytest

from gpusetup.matrix.load import matrix
from gpusetup.model.applied import SCHEMA, Apply, HostRecord
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import request_for
from gpusetup.plan.settings import read_level, settings_for
from gpusetup.resolve.api import resolve
from tests.hosts.machines import changed, machine
from tests.records import record
from tests.unit.plan.conftest import DRIVER, asked

STACK = {
    "driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"},
    "torch": {"version": "2.14.1", "variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": "", "on_pypi": True},
}  # fmt: skip
KEEP = machine("ubuntu24.04-h200-keep")


def applied(stack, *, manages=True):
    wanted = {"manage_driver": manages, "packages": None, "requirements": [], "adopted": [], "services": []}
    lock = {"schema": SCHEMA, "key": "another matrix", "stack": stack, "wanted": wanted}
    return changed(KEEP, state=record({"lock": lock}))


def chosen(*wishes, upgrade=False, manages=True):
    return resolve(
        request_for(applied(STACK, manages=manages), Settings(requirements=wishes, upgrade=upgrade)), matrix()
    )


TORCH = Requirement(component="torch")


def test_a_newer_release_does_not_replace_what_is_on_record():
    found = chosen(TORCH)
    assert (found.stack.torch.version, found.stack.torch.variant) == ("2.14.1", "cu130")
    assert "stays-on-record" in {item.rule for item in found.reasons}


@pytest.mark.parametrize(("more", "upgrade"), [({}, True), ({"latest": True}, False), ({"specifier": ">=2.15"}, False)])
def test_upgrade_latest_and_another_wish_choose_anew(more, upgrade):
    assert chosen(changed(TORCH, **more), upgrade=upgrade).stack.torch.version == "2.15.0"


@pytest.mark.parametrize(("manages", "version"), [(True, "620.70.06"), (False, KEEP.driver.version)])
def test_upgrade_moves_a_driver_of_ours_and_keeps_one_that_was_there(manages, version):
    assert chosen(TORCH, upgrade=True, manages=manages).stack.driver.version == version


def test_a_record_of_another_form_is_no_obstacle():
    assert request_for(applied({"torch": {"strange": 1}}), Settings()).recorded == ()


def test_latest_in_an_inventory_means_latest():
    level = read_level({"torch": "latest", "cuda": True, "upgrade": "yes", "dev": True}, "gpusetup.toml")
    found = settings_for({}, level, {}, ())
    assert {str(item) for item in found.requirements} == {"torch==latest", "cuda"}
    assert found.upgrade
    assert found.dev


@pytest.mark.parametrize("dev", [False, True])
def test_libraries_are_held_beside_a_driver_that_was_there_and_headers_come_when_asked_for(planner, nvidia_ubuntu, dev):
    plan = planner.second(KEEP, asked("cuda", "cudnn", "nccl", dev=dev), nvidia_ubuntu).plan
    assert plan.lock.wanted.manage_driver is False
    theirs = "disable the entries in /etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.sources"
    assert [action.what for action in plan.actions if action.kind == "repository"] == [theirs]
    names = {package.name for package in plan.variables.gpu_cuda_packages}
    assert {name.partition("-")[0] for name in names} >= {"cuda", "libcudnn9", "libnccl2"}
    assert ("libnccl-dev" in names, any(name.startswith("libcudnn9-dev") for name in names)) == (dev, dev)
    assert set(plan.holds) == names
    assert "hold-libraries" in {action.id for action in plan.actions if action.kind == "hold"}


def test_holds_that_an_apply_without_packages_releases_are_named(planner):
    packages = {"installed": {**KEEP.packages.installed, "libnccl2": "2"}, "held": ("libnccl2",)}
    facts = changed(KEEP, packages=packages, state=HostRecord(holds=("libnccl2",)))
    assert planner.first(facts, DRIVER).plan.state == "unchanged", "they stay while nothing changes"
    begun = changed(facts, state={"apply": Apply(id="run-1")})
    told = [action.what for action in planner.first(begun, DRIVER).plan.actions if action.kind == "hold"]
    assert told == ["no longer libnccl2"]
