"""Limits on compiler wheels never make a finished environment anew, a record speaks for all its pins, and wheels count in the download."""

import msgspec
import pytest

from gpusetup.cli.plan import plan_text
from gpusetup.components.python.environments import lacking
from gpusetup.components.python.size import DiskSpace, disk_space_of
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import SCHEMA
from gpusetup.model.facts import Python
from gpusetup.model.plan import Plan, Preview, PreviewTransaction
from gpusetup.model.settings import HashedLines
from gpusetup.model.stack import MatrixStamp
from gpusetup.model.tables import WheelsFile
from tests.hosts.machines import changed
from tests.records import record
from tests.unit.plan.conftest import asked, drafted

LINE = "torch==2.14.1"
LIMITED = (LINE, "cuda-bindings<13.1", "nvidia-nvjitlink<13.1")
NEWER = (LINE, "cuda-bindings<13.4", "nvidia-nvjitlink<13.4")
STACK = {
    "driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"},
    "torch": {"version": "2.14.1", "variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": "", "on_pypi": True},
}  # fmt: skip


@pytest.fixture
def bare(host):
    return host("ubuntu24.04-h200-keep")


def with_environment(facts, lines, nvjitlink, **expect):
    wanted = {"manage_driver": False, "packages": None, "requirements": lines, "adopted": [], "services": []}
    python = {"path": "/opt/gpusetup", "packages": {"torch": "2.14.1"}, **expect}
    lock = {"schema": SCHEMA, "key": "another matrix", "stack": STACK, "wanted": wanted}
    packages = {"torch": "2.14.1", "nvidia-nvjitlink": nvjitlink}
    there = Python(path="/opt/gpusetup/bin/python3", version="3.12", ensurepip=True, packages=packages)
    return changed(facts, state=record({"lock": lock, "expect": {"python": python}}), pythons=(*facts.pythons, there))


def planned(planner, facts, **about):
    plan = planner.first(facts, asked(LINE, **about)).plan
    todo = [action.what for action in plan.actions if action.kind == "python"]
    return tuple(plan.variables.gpu_python_requirements or ()), todo


def test_a_new_environment_has_the_limits(planner, bare):
    assert planned(planner, bare) == (LIMITED, ["torch==2.14.1 in /opt/gpusetup"])


@pytest.mark.parametrize(
    ("lines", "nvjitlink", "upgrade", "becomes", "todo"),
    [
        ((LINE,), "13.0.88", False, (LINE,), []),  # from before the limits: it stays as it was made
        ((LINE,), "13.5.37", False, (LINE,), []),
        ((LINE,), "13.0.88", True, (LINE,), []),
        ((LINE,), "13.5.37", True, LIMITED, ["nvidia-nvjitlink<13.1 in /opt/gpusetup"]),
        (NEWER, "13.0.88", False, NEWER, []),  # limits on record follow a driver that is older now
        (NEWER, "13.3.73", False, LIMITED, ["nvidia-nvjitlink<13.1 in /opt/gpusetup"]),
        (("torch==2.14.0",), "13.5.37", False, LIMITED, ["nvidia-nvjitlink<13.1 in /opt/gpusetup"]),
    ],
)
def test_an_environment_is_made_anew_only_where_a_wheel_is_beyond_its_limit(
    planner, bare, lines, nvjitlink, upgrade, becomes, todo
):
    assert planned(planner, with_environment(bare, lines, nvjitlink), upgrade=upgrade) == (becomes, todo)


def test_what_the_probe_does_not_list_is_judged_by_the_record(bare):
    """A lock with hashes names dozens of packages; the probe tells of the frameworks alone."""
    lines = ("torch==2.14.1 --hash=sha256:aa", "networkx==3.5 --hash=sha256:bb")
    known = {"torch": "2.14.1", "networkx": "3.5"}
    assert lacking(lines, with_environment(bare, lines, "13.0.88", packages=known), asked(LINE)) == []
    damaged = with_environment(bare, lines, "13.0.88", packages=known, now="its packages were changed")
    assert lacking(lines, damaged, asked(LINE)) == [lines[1]]
    assert lacking(lines, bare, asked(LINE)) == list(lines)


def test_hashes_of_a_lock_hold_whatever_its_limits_are(planner, bare):
    """A host may keep another driver than the one that the lock was made for."""
    hashed = ("torch==2.14.1 --hash=sha256:aa", "nvidia-nvjitlink==13.2.86 --hash=sha256:bb")
    lines = (LINE, "cuda-bindings<13.3", "nvidia-nvjitlink<13.3")
    locked = HashedLines(lines=lines, hashed=hashed, python="3.12", arch="x86_64")
    assert planned(planner, bare, hashed=(locked,))[0] == hashed


CLOSURES = {
    "frame==1": ["frame==1", "nvidia-cublas==13.0"],
    "Array[ctk]==2": ["array==2", "nvidia-cublas==13.1"],
}
SIZES = {"frame==1": [10, 30], "array==2": [1, 2], "nvidia-cublas==13.0": [100, 200], "nvidia-cublas==13.1": [110, 220]}
ROW = {"arch": "x86_64", "python": "3.12", "sources": [], "confidence": "observed"}
MEASURED = msgspec.convert(
    {
        "schema": "gpusetup/matrix-wheels/1", "date": "2026-11-23", "sources": {}, "sizes": {"x86_64": SIZES},
        "closures": [ROW | {"pin": pin, "wheels": wheels} for pin, wheels in CLOSURES.items()],
    },
    WheelsFile,
)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "room"),
    [
        ((), DiskSpace()),
        (("frame==1",), DiskSpace(110, 230)),
        (("frame==1", "Array[ctk]==2", "nvidia-nvjitlink<13.1"), DiskSpace(121, 252)),
        (("--extra-index-url https://x", "frame==1+cu130"), DiskSpace(0, 0, ("frame==1+cu130",))),
        (("frame==1 --hash=sha256:aa", "Array==2 --hash=sha256:bb", "other==3 --hash=sha256:cc"), DiskSpace(111, 232, ("other==3",))),
    ],
)  # fmt: skip
def test_what_lines_bring_is_counted_once(lines, room):
    assert disk_space_of(lines, "x86_64", MEASURED) == room
    assert disk_space_of(lines, "aarch64", MEASURED).download == 0


@pytest.fixture
def sized(planner, nvidia_ubuntu):
    """Plan a wish whose packages are five megabytes; return the plan and its text."""

    def make(facts, wish):
        draft = drafted(planner, facts, asked(wish), nvidia_ubuntu)
        plan = planner.third(draft, Preview(transaction=PreviewTransaction(download_bytes=5_000_000)))
        return plan, plan_text(Plan(matrix=MatrixStamp(date="d", digest="x"), hosts={"a": plan}))

    return make


def test_measured_wheels_count_and_their_room_is_asked_for(sized, bare):
    plan, text = sized(bare, "cupy")
    room = disk_space_of(plan.variables.gpu_python_requirements, "x86_64", matrix().wheels)
    assert room.unknown == ()
    assert room.installed > room.download > 10_000_000
    assert (plan.wheel_bytes, plan.package_bytes) == (room.download, 5_000_000)
    assert plan.download_bytes == room.download + 5_000_000
    assert plan.variables.gpu_preflight_space_mb == {"/opt/gpusetup": -(-room.peak >> 20)}
    assert "of it Python packages" in text


def test_what_nobody_measured_is_said(sized, bare):
    plan, text = sized(bare, "torch==2.6.*+cu124")
    assert plan.download_bytes is plan.wheel_bytes is None
    assert [text for text in plan.warnings if "the size of torch==2.6.0 is not known" in text]
    assert "5 MB of packages, and Python packages of unknown size" in text


def test_without_python_packages_all_is_as_it_was(sized, bare):
    plan, text = sized(changed(bare, driver=None), "driver")
    assert (plan.download_bytes, plan.wheel_bytes) == (5_000_000, 0)
    assert plan.variables.gpu_preflight_space_mb is msgspec.UNSET
    assert "  download 5 MB\n" in text
