"""IMEX in plans: what may be written, the package in the driver's version, what changes."""

import pytest

from gpusetup.components.fabric import _notes
from gpusetup.errors import BadInputError
from gpusetup.model.settings import ImexWish
from gpusetup.plan.settings import read_level
from tests.hosts.machines import changed, machine
from tests.refusals import refused
from tests.stored import stored_rows
from tests.unit.plan.conftest import answer, asked, host, nvidia_ubuntu, planner

NODES = ("10.0.0.1", "10.0.0.2")


def wish(value):
    return read_level({"gpusetup_imex": value}, "host gpu1", prefix="gpusetup_")["imex"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (["10.0.0.1", "10.0.0.2"], ImexWish(nodes=NODES, channels=1)),
        ('{"nodes": ["tray1.rack", "fd00::2"], "channels": 4}', ImexWish(nodes=("tray1.rack", "fd00::2"), channels=4)),
        ("10.0.0.1 10.0.0.2", ImexWish(nodes=NODES, channels=1)),
        (False, None),
    ],
)
def test_a_domain_is_read(value, read):
    assert wish(value) == read


@pytest.mark.parametrize(("value", "hint"), stored_rows("imex-refused.json"))
def test_what_is_no_domain_is_refused(value, hint):
    with refused(BadInputError, "GS-375", hint=hint):
        wish(value)


def test_the_package_is_of_the_driver_s_version_and_no_fabric_manager_comes():
    facts = machine("ubuntu24.04-rtx4090-open", driver=None)
    newest = planner.second(facts, asked("driver", imex=ImexWish(nodes=NODES)), nvidia_ubuntu).plan
    assert (newest.refusals, newest.variables.gpu_fabric_services) == ((), ())
    (imex,) = newest.variables.gpu_fabric_packages
    assert (imex.name, imex.version.startswith(newest.stack.driver.version)) == ("nvidia-imex", True)
    assert newest.variables.gpu_imex_nodes == NODES
    assert [action.what for action in newest.actions if action.id == "service-imex"] == [
        "IMEX domain of 2 machines: 10.0.0.1, 10.0.0.2"
    ]
    assert any("is not known to reach other machines" in text for text in newest.warnings)
    racks = [changed(gpu, name="GB200") for gpu in machine("ubuntu24.04-rtx4090-open").gpus]
    assert list(_notes(racks, ImexWish(nodes=NODES))) == [], "whose NVLink does"


def test_beside_a_driver_of_somebody_else_it_is_held():
    facts, settings = host("ubuntu24.04-h200-keep"), asked("driver", imex=ImexWish(nodes=NODES[:1]))
    plan = planner.second(facts, settings, answer([], ("nvidia-imex", f"{facts.driver.version}-1"))).plan
    assert not plan.lock.wanted.manage_driver
    assert [action.what for action in plan.actions if action.kind == "hold"] == ["nvidia-imex"]
    assert plan.variables.gpu_packages_hold == ("nvidia-imex",)
