"""Desktops in plans: what may be written, the packages, what changes."""

from gpusetup.components.base import Context, Offers
from gpusetup.components.desktops import DESKTOPS
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import SCHEMA, HostRecord, RecordedService
from gpusetup.model.facts import Service
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import DesktopsWish, Settings
from gpusetup.model.stack import Stack
from gpusetup.plan.lifecycle import differences
from tests.hosts.machines import changed
from tests.lab.repository import catalog
from tests.records import lock_of
from tests.refusals import refused
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
    assert actions["install-desktops"].why == "VNC by the distribution's TigerVNC: no repository here has TurboVNC"
    where = "drawn on the GPU by EGL, at 127.0.0.1:6080 to 6081"
    assert actions["service-desktops"].what == f"a desktop of 1920x1080 for alice, bob, {where}"


def test_a_repository_without_virtualgl_is_refused_and_a_package_that_is_there_counts():
    with refused(PreflightError, "GS-387", message="needs virtualgl, which", hint="gpusetup_extra_sources"):
        planned()
    there = host(RTX, packages={"installed": dict.fromkeys([*DISTRIBUTION, "virtualgl"], "1.0")})
    context = Context(facts=there, settings=Settings(desktops=WISH), offers=Offers({}), repos=matrix().repos)
    brought = DESKTOPS.wants(context, "apt", Stack(), matrix())
    assert [package.name for package in brought.packages] == ["virtualgl", *DISTRIBUTION]


def test_turbovnc_is_taken_where_a_repository_has_it():
    plan = planned("virtualgl", "turbovnc", "startxfce4", session="startxfce4")
    assert names(plan) == ["virtualgl", *DISTRIBUTION[:4], "turbovnc"]
    (install,) = (action for action in plan.actions if action.id == "install-desktops")
    assert install.why == "VNC by TurboVNC, which a repository here has"


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
