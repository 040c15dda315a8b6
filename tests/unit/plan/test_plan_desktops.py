"""Desktops in plans: what may be written, the packages, what changes."""

from msgspec import UNSET

from gpusetup.components.base import Wanted
from gpusetup.components.desktops import DESKTOPS
from gpusetup.model.applied import SCHEMA, HostRecord, RecordedService
from gpusetup.model.facts import Service
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import DesktopsWish, Settings
from gpusetup.model.stack import Stack
from gpusetup.plan.actions import role_variables
from gpusetup.plan.lifecycle import differences
from gpusetup.plan.wanted import without_leftovers
from tests.hosts.machines import changed
from tests.lab.repository import catalog
from tests.records import lock_of
from tests.unit.plan.conftest import answer, asked, changes, host, planner

WISH = DesktopsWish(users=("alice", "bob"))


RTX = "ubuntu24.04-rtx4090-open"
DISTRIBUTION = [
    "novnc", "websockify", "mesa-utils", "xauth", "tigervnc-standalone-server", "tigervnc-tools", "openbox", "xterm",
]  # fmt: skip
UNIT = "gpusetup-desktop-of-alice.service"


def planned(*offered, **more):
    offers = answer(catalog.ubuntu(), *((name, "1.0") for name in (*DISTRIBUTION, *offered)))
    settings = asked("driver", desktops=changed(WISH, **more))
    return planner.second(host(RTX, driver=None), settings, offers).plan


def names(plan):
    return [package.name for package in plan.variables.gpu_desktop_packages]


def test_the_half_of_the_driver_that_draws_comes_with_the_distribution_s_server():
    plan = planned("virtualgl")
    assert (plan.refusals, names(plan)) == ((), ["virtualgl", *DISTRIBUTION])
    drawing = [package for package in plan.variables.gpu_driver_packages if package.name.startswith("libnvidia-gl")]
    assert [package.version.startswith(plan.stack.driver.version) for package in drawing] == [True]
    actions = {action.id: action for action in plan.actions}
    packages, desktops = actions["install-desktops"], actions["service-desktops"]
    assert packages.why == "VNC by the distribution's TigerVNC: no repository here has TurboVNC"
    where = "drawn on the GPU by EGL, at 127.0.0.1:6080 to 6081"
    assert desktops.what == f"a desktop of 1920x1080 for alice, bob, {where}"
    assert plan.variables.gpu_desktop_users == ("alice", "bob")
    assert not any("half of this driver" in text for text in plan.warnings)


def test_turbovnc_is_taken_where_a_repository_has_it():
    plan = planned("virtualgl", "turbovnc", "startxfce4", session="startxfce4")
    assert names(plan) == ["virtualgl", *DISTRIBUTION[:4], "turbovnc"]
    (packages,) = (action for action in plan.actions if action.id == "install-desktops")
    assert packages.why == "VNC by TurboVNC, which a repository here has"


def recorded(facts, active="active"):
    packages = PackageSet(manager="apt", desktops=(Package(name="virtualgl"), Package(name="novnc")))
    lock = lock_of(packages)
    record = HostRecord(
        lock=changed(lock, schema=SCHEMA, key="k", wanted={"desktops": WISH, "manage_driver": False}),
        services={UNIT: RecordedService(enabled=True)}, brought={"virtualgl": "3.1.4"},
    )  # fmt: skip
    service = Service(unit=UNIT, active=active, enabled="enabled")
    return changed(facts, state=record, services={**facts.services, UNIT: service})


def test_what_is_as_recorded_changes_nothing_and_a_stopped_desktop_is_told():
    facts = host(RTX)
    assert changes(DESKTOPS, facts) == changes(DESKTOPS, recorded(facts), WISH) == []
    inactive = recorded(facts, active="inactive")
    (stopped,) = changes(DESKTOPS, inactive, WISH)
    assert stopped.why == f"{UNIT} does not run"
    told = [(item.id, item.now) for item in differences(inactive) if "desktop" in item.id]
    assert told == [(f"desktop-{UNIT}", "inactive")]
    more = changed(WISH, users=("alice", "carol"), group="vglusers")
    other, group = changes(DESKTOPS, recorded(facts), more)
    assert "running ones stay as they are" in other.why
    assert group.what == "only the group vglusers may use the GPUs (/dev/nvidia*, /dev/dri)"


def test_what_is_no_longer_asked_for_goes_with_its_packages():
    facts = recorded(host(RTX))
    (action,) = changes(DESKTOPS, facts)
    assert action.what == "no desktops for alice, bob: their programs end"
    wanted = Wanted(stack=Stack(), packages=None, settings=Settings(), manage_driver=False)
    backends = [role_variables(one, wanted).gpu_desktop_backend for one in (facts, host(RTX))]
    assert backends == ["none", UNSET]
    assert without_leftovers(facts, None).remove == ("virtualgl",)
