"""Desktops in plans: what may be written, the packages, what changes."""

import msgspec
import pytest
from msgspec import UNSET

from gpusetup.components.base import Wanted
from gpusetup.components.desktops import DESKTOPS
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import SCHEMA, Applied, HostRecord, RecordedService
from gpusetup.model.facts import Service
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.request import Requirement
from gpusetup.model.settings import AppliedWanted, DesktopsWish, Settings
from gpusetup.model.stack import Stack
from gpusetup.plan.actions import role_variables
from gpusetup.plan.lifecycle import differences
from gpusetup.plan.settings import read_level
from gpusetup.plan.wanted import without_leftovers
from tests.lab.repository import catalog
from tests.stored import stored_rows
from tests.unit.plan.conftest import answer, changes

WISH = DesktopsWish(users=("alice", "bob"))
DISTRIBUTION = tuple(
    (name, "1.0")
    for name in (
        "novnc", "websockify", "mesa-utils", "xauth", "tigervnc-standalone-server", "tigervnc-tools", "openbox", "xterm",
    )
)  # fmt: skip


def wish(value):
    return read_level({"gpusetup_desktops": value}, "host gpu1", prefix="gpusetup_")["desktops"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (["alice", "bob"], WISH),
        ("alice, bob", WISH),
        ('{"users": ["alice"], "size": "2560x1440", "port": 7000}', DesktopsWish(users=("alice",), size="2560x1440", port=7000)),
        ({"users": ["j.doe"], "session": "startxfce4", "backend": "x"}, DesktopsWish(users=("j.doe",), session="startxfce4", backend="x")),
        (
            {"users": ["a"], "listen": "0.0.0.0", "certificate": "/etc/a.crt", "key": "/etc/a.key", "group": "vglusers"},
            DesktopsWish(users=("a",), listen="0.0.0.0", certificate="/etc/a.crt", key="/etc/a.key", group="vglusers"),
        ),
        (False, None),
        ("none", None),
    ],
)  # fmt: skip
def test_desktops_are_read(value, read):
    assert wish(value) == read


@pytest.mark.parametrize(("value", "hint"), stored_rows("refused-desktops.json"))
def test_what_cannot_be_a_desktop_is_refused(value, hint):
    with pytest.raises(BadInputError) as caught:
        wish(value)
    assert caught.value.reference == "GS-386"
    assert hint in caught.value.hint


def planned(host, planner, *offered, **more):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    settings = Settings(requirements=(Requirement(component="driver"),), desktops=msgspec.structs.replace(WISH, **more))
    return planner.second(facts, settings, answer(catalog.ubuntu(), *offered)).plan


def test_the_half_of_the_driver_that_draws_comes_with_the_distribution_s_server(host, planner):
    plan = planned(host, planner, *DISTRIBUTION, ("virtualgl", "3.1.4"))
    assert plan.refusals == ()
    names = [package.name for package in plan.variables.gpu_desktop_packages]
    assert names == ["virtualgl", *(name for name, _version in DISTRIBUTION)]
    drawing = [package for package in plan.variables.gpu_driver_packages if package.name.startswith("libnvidia-gl")]
    assert [package.version.startswith(plan.stack.driver.version) for package in drawing] == [True]
    (packages,) = (action for action in plan.actions if action.id == "install-desktops")
    assert packages.why == "VNC by the distribution's TigerVNC: no repository here has TurboVNC"
    (desktops,) = (action for action in plan.actions if action.id == "service-desktops")
    assert desktops.what == (
        "a desktop of 1920x1080 for alice, bob, drawn on the GPU by EGL, at 127.0.0.1:6080 to 6081"
    )
    assert plan.variables.gpu_desktop_users == ("alice", "bob")
    assert not any("half of this driver" in text for text in plan.warnings)


def test_turbovnc_is_taken_where_a_repository_has_it(host, planner):
    plan = planned(
        host, planner, *DISTRIBUTION, ("virtualgl", "3.1.4"), ("turbovnc", "3.2"), ("startxfce4", "1"), session="startxfce4"
    )  # fmt: skip
    names = [package.name for package in plan.variables.gpu_desktop_packages]
    assert names == ["virtualgl", "novnc", "websockify", "mesa-utils", "xauth", "turbovnc"]
    (packages,) = (action for action in plan.actions if action.id == "install-desktops")
    assert packages.why == "VNC by TurboVNC, which a repository here has"


def test_a_repository_without_virtualgl_is_refused(host, planner):
    with pytest.raises(PreflightError) as caught:
        planned(host, planner, *DISTRIBUTION)
    assert (caught.value.reference, "needs virtualgl, which" in caught.value.message) == ("GS-387", True)
    assert "gpusetup_extra_sources" in caught.value.hint


def test_other_package_managers_are_refused(host, planner):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    from gpusetup.components.base import Context, Offers
    from gpusetup.matrix.load import matrix

    context = Context(facts=facts, settings=Settings(desktops=WISH), offers=Offers(None), repos=matrix().repos)
    with pytest.raises(PreflightError) as caught:
        DESKTOPS.wants(context, "dnf", Stack(), matrix())
    assert caught.value.reference == "GS-387"


def recorded(facts, active="active", desktops=WISH):
    packages = PackageSet(manager="apt", desktops=(Package(name="virtualgl"), Package(name="novnc")))
    wanted = AppliedWanted(
        packages=packages, manage_driver=False, requirements=(), adopted=(), services=(), desktops=desktops
    )
    unit = "gpusetup-desktop-of-alice.service"
    record = HostRecord(
        lock=Applied(schema=SCHEMA, key="k", stack=Stack(), wanted=wanted),
        services={unit: RecordedService(enabled=True)},
        brought={"virtualgl": "3.1.4"},
    )
    service = Service(unit=unit, active=active, enabled="enabled")
    return msgspec.structs.replace(facts, state=record, services={**facts.services, unit: service})


def test_what_is_as_recorded_changes_nothing_and_a_stopped_desktop_is_told(host):
    facts = host("ubuntu24.04-rtx4090-open")
    assert changes(DESKTOPS, facts) == []
    assert changes(DESKTOPS, recorded(facts), WISH) == []
    (stopped,) = changes(DESKTOPS, recorded(facts, active="inactive"), WISH)
    assert stopped.why == "gpusetup-desktop-of-alice.service does not run"
    told = [(item.id, item.now) for item in differences(recorded(facts, active="inactive")) if "desktop" in item.id]
    assert told == [("desktop-gpusetup-desktop-of-alice.service", "inactive")]
    more = msgspec.structs.replace(WISH, users=("alice", "carol"), group="vglusers")
    other, group = changes(DESKTOPS, recorded(facts), more)
    assert "running ones stay as they are" in other.why
    assert group.what == "only the group vglusers may use the GPUs (/dev/nvidia*, /dev/dri)"


def test_what_is_no_longer_asked_for_goes_with_its_packages(host):
    facts = recorded(host("ubuntu24.04-rtx4090-open"))
    (action,) = changes(DESKTOPS, facts)
    assert action.what == "no desktops for alice, bob: their programs end"
    wanted = Wanted(stack=Stack(), packages=None, settings=Settings(), manage_driver=False)
    assert role_variables(facts, wanted).gpu_desktop_backend == "none"
    assert role_variables(host("ubuntu24.04-rtx4090-open"), wanted).gpu_desktop_backend is UNSET
    left = without_leftovers(facts, None)
    assert left is not None
    assert left.remove == ("virtualgl",)
