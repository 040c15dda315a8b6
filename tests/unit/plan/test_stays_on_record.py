"""What was applied stays until --upgrade, `latest` or a wish that it does not meet; what is brought is held."""

import msgspec
import pytest

from gpusetup.model.applied import SCHEMA, Apply, HostRecord
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import request_for
from gpusetup.plan.settings import read_level, settings_for
from gpusetup.resolve.api import resolve
from tests.records import record

CUDA = (Requirement(component="cuda"), Requirement(component="cudnn"), Requirement(component="nccl"))


def applied(stack, *, manages=True):
    wanted = {"manage_driver": manages, "packages": None, "requirements": [], "adopted": [], "services": []}
    return record({"lock": {"schema": SCHEMA, "key": "another matrix", "stack": stack, "wanted": wanted}})


STACK = {
    "driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"},
    "torch": {"version": "2.14.1", "variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": "", "on_pypi": True},
}  # fmt: skip


def asked(host, *wishes, upgrade=False, manages=True):
    facts = msgspec.structs.replace(host("ubuntu24.04-h200-keep"), state=applied(STACK, manages=manages))
    settings = Settings(requirements=wishes, upgrade=upgrade)
    from gpusetup.matrix.load import matrix

    return resolve(request_for(facts, settings), matrix())


def test_a_newer_release_does_not_replace_what_is_on_record(host):
    found = asked(host, Requirement(component="torch"))
    assert (found.stack.torch.version, found.stack.torch.variant) == ("2.14.1", "cu130")
    assert "stays-on-record" in {item.rule for item in found.reasons}


@pytest.mark.parametrize(
    ("wish", "upgrade"),
    [
        (Requirement(component="torch"), True),
        (Requirement(component="torch", latest=True), False),
        (Requirement(component="torch", specifier=">=2.15"), False),
    ],
)
def test_upgrade_latest_and_another_wish_choose_anew(host, wish, upgrade):
    assert asked(host, wish, upgrade=upgrade).stack.torch.version == "2.15.0"


def test_upgrade_moves_a_driver_of_ours_and_keeps_one_that_was_there(host):
    working = host("ubuntu24.04-h200-keep").driver.version
    ours = asked(host, Requirement(component="torch"), upgrade=True, manages=True)
    theirs = asked(host, Requirement(component="torch"), upgrade=True, manages=False)
    assert theirs.stack.driver.version == working
    assert ours.stack.driver.version == "620.70.06"


def test_a_record_of_another_form_is_no_obstacle(host):
    facts = msgspec.structs.replace(host("ubuntu24.04-h200-keep"), state=applied({"torch": {"strange": 1}}))
    assert request_for(facts, Settings()).recorded == ()


def test_latest_in_an_inventory_means_latest():
    level = read_level({"torch": "latest", "cuda": True, "upgrade": "yes", "dev": True}, "gpusetup.toml")
    found = settings_for({}, level, {}, ())
    assert {str(item) for item in found.requirements} == {"torch==latest", "cuda"}
    assert found.upgrade
    assert found.dev


def test_libraries_are_held_beside_a_driver_that_was_there(host, planner, nvidia_ubuntu):
    facts, settings = host("ubuntu24.04-h200-keep"), Settings(requirements=CUDA)
    plan = planner.second(facts, settings, nvidia_ubuntu).plan
    assert plan.lock.wanted.manage_driver is False
    theirs = "disable the entries in /etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.sources"
    assert [action.what for action in plan.actions if action.kind == "repository"] == [theirs]
    names = {package.name for package in plan.variables.gpu_cuda_packages}
    assert {name.partition("-")[0] for name in names} >= {"cuda", "libcudnn9", "libnccl2"}
    assert set(plan.holds) == names
    assert "hold-libraries" in {action.id for action in plan.actions if action.kind == "hold"}


def test_holds_that_an_apply_without_packages_releases_are_named(host, planner):
    facts, change = host("ubuntu24.04-h200-keep"), msgspec.structs.replace
    packages = change(facts.packages, installed={**facts.packages.installed, "libnccl2": "2"}, held=("libnccl2",))
    facts = change(facts, packages=packages, state=HostRecord(holds=("libnccl2",)))
    settings = Settings(requirements=(Requirement(component="driver"),))
    assert planner.first(facts, settings).plan.state == "unchanged", "they stay while nothing changes"
    begun = change(facts, state=HostRecord(holds=("libnccl2",), apply=Apply(id="run-1")))
    told = [action.what for action in planner.first(begun, settings).plan.actions if action.kind == "hold"]
    assert told == ["no longer libnccl2"]


def test_headers_come_when_they_are_asked_for(host, planner, nvidia_ubuntu):
    facts = host("ubuntu24.04-h200-keep")
    for dev in (False, True):
        plan = planner.second(facts, Settings(requirements=CUDA, dev=dev), nvidia_ubuntu).plan
        names = {package.name for package in plan.variables.gpu_cuda_packages}
        assert ("libnccl-dev" in names, any(name.startswith("libcudnn9-dev") for name in names)) == (dev, dev)
