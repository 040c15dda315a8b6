"""`apply --lock --keep-driver`: a working driver stays where the rest of the lock goes with it."""

import pytest
from msgspec.structs import replace

from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.rollout.looks import _with_own_driver


def locked(**versions):
    return Settings(requirements=tuple(Requirement(component=name, specifier=f"=={v}") for name, v in versions.items()))


def driver_of(settings):
    return next(item.specifier for item in settings.requirements if item.component == "driver")


@pytest.fixture
def working(host):
    facts = host("ubuntu24.04-h200-keep")
    assert facts.driver is not None
    return facts


def test_a_working_driver_that_fits_stays(planner, working):
    own = working.driver.version
    kept = _with_own_driver(planner, working, locked(driver="580.178.04"))
    assert driver_of(kept) == f"=={own}" != "==580.178.04"


def test_one_that_does_not_go_with_the_rest_is_replaced(planner, working):
    wish = locked(driver="580.178.04", cuda="13.0.2")
    old = replace(working, driver=replace(working.driver, version="525.147.05", loaded="525.147.05", module=None))
    assert driver_of(_with_own_driver(planner, old, wish)) == "==580.178.04"


def test_a_driver_that_does_not_work_is_none(planner, working, host):
    broken = replace(working, driver=replace(working.driver, mismatch=True))
    for facts in (broken, host("ubuntu24.04-h200-keep", driver=None)):
        wish = locked(driver="580.178.04")
        assert _with_own_driver(planner, facts, wish) is wish
