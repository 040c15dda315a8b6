"""IMEX in plans: what may be written, the package in the driver's version, what changes."""

import msgspec
import pytest
from msgspec import UNSET

from gpusetup.components.base import Wanted
from gpusetup.components.fabric import IMEX
from gpusetup.components.judge import names
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import HostRecord, RecordedFile
from gpusetup.model.request import Requirement
from gpusetup.model.settings import ImexWish, Settings
from gpusetup.model.stack import Stack
from gpusetup.plan.actions import role_variables
from gpusetup.plan.settings import read_level
from tests.unit.plan.conftest import answer, changes

_DRIVER = (Requirement(component="driver"),)


def wish(value):
    return read_level({"gpusetup_imex": value}, "host gpu1", prefix="gpusetup_")["imex"]


@pytest.mark.parametrize(
    ("value", "nodes", "channels"),
    [
        (["10.0.0.1", "10.0.0.2"], ("10.0.0.1", "10.0.0.2"), 1),
        ('{"nodes": ["tray1.rack", "fd00::2"], "channels": 4}', ("tray1.rack", "fd00::2"), 4),
        ("10.0.0.1 10.0.0.2", ("10.0.0.1", "10.0.0.2"), 1),
    ],
)
def test_a_domain_is_read(value, nodes, channels):
    assert wish(value) == ImexWish(nodes=nodes, channels=channels)
    assert wish(False) is None


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (["10.0.0.1", "10.0.0.1"], "name each machine once"),
        (["10.0.0.300"], "write the machines' addresses or names"),
        (["a b; rm"], "write the machines' addresses or names"),
        ([1], "for example"),
        ({"channels": 2}, "for example"),
        ({"nodes": ["10.0.0.1"], "channels": 0}, "write how many channels"),
        ({"nodes": ["10.0.0.1"], "channel": 1}, "for example"),
        ("[", "for example"),
    ],
)
def test_what_is_no_domain_is_refused(value, hint):
    with pytest.raises(BadInputError) as caught:
        wish(value)
    assert caught.value.reference == "GS-375"
    assert hint in caught.value.hint


def planned(host, planner, offers):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    settings = Settings(requirements=_DRIVER, imex=ImexWish(nodes=("10.0.0.1", "10.0.0.2")))
    return planner.second(facts, settings, offers).plan


def test_the_package_is_of_the_driver_s_version_and_no_fabric_manager_comes(host, planner):
    from tests.lab.repository import catalog

    newest = planned(host, planner, answer(catalog.ubuntu()))
    assert newest.refusals == ()
    (imex,) = newest.variables.gpu_fabric_packages
    assert imex.name == "nvidia-imex"
    assert imex.version.startswith(newest.stack.driver.version)
    assert newest.variables.gpu_fabric_services == ()
    assert newest.variables.gpu_imex_nodes == ("10.0.0.1", "10.0.0.2")
    assert [action.what for action in newest.actions if action.id == "service-imex"] == [
        "IMEX domain of 2 machines: 10.0.0.1, 10.0.0.2"
    ]
    assert any("is not known to reach other machines" in text for text in newest.warnings)


def test_a_repository_without_that_version_is_refused(host, planner):
    from tests.lab.repository import catalog

    others = [package for package in catalog.ubuntu() if "imex" not in package.name]
    with pytest.raises(PreflightError) as caught:
        planned(host, planner, answer(others, ("nvidia-imex", "570.1.1-1")))
    assert caught.value.reference == "GS-376"


def test_nothing_of_it_where_nobody_asks(host):
    assert changes(IMEX, host("ubuntu24.04-rtx4090-open")) == []


def test_what_is_no_longer_asked_for_is_told_to_the_role(host):
    facts = host("ubuntu24.04-rtx4090-open")
    wanted = Wanted(stack=Stack(), packages=None, settings=Settings(), manage_driver=False)
    assert role_variables(facts, wanted).gpu_imex_channels is UNSET
    record = HostRecord(files={names.IMEX_NODES: RecordedFile(sha256="0" * 64)})
    facts = msgspec.structs.replace(facts, state=record)
    assert role_variables(facts, wanted).gpu_imex_channels == 0
    (action,) = changes(IMEX, facts)
    assert action.what == "the IMEX domain as it was before"


def test_beside_a_driver_of_somebody_else_it_is_held(host, planner):
    facts, settings = host("ubuntu24.04-h200-keep"), Settings(requirements=_DRIVER, imex=ImexWish(nodes=("10.0.0.1",)))
    plan = planner.second(facts, settings, answer([], ("nvidia-imex", f"{facts.driver.version}-1"))).plan
    assert not plan.lock.wanted.manage_driver
    assert [action.what for action in plan.actions if action.kind == "hold"] == ["nvidia-imex"]
    assert plan.variables.gpu_packages_hold == ("nvidia-imex",)
