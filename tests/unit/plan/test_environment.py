"""A plan's Python environment: limits that keep compiler wheels at the driver's CUDA, when it is made anew, what it downloads."""

import msgspec
import pytest

from gpusetup.cli.plan import plan_text
from gpusetup.components.python.environments import lacking
from gpusetup.components.python.requirements import compiler_caps, python_requirements
from gpusetup.components.python.size import DiskSpace, disk_space_of
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import SCHEMA
from gpusetup.model.facts import Python
from gpusetup.model.plan import Plan, Preview, PreviewTransaction
from gpusetup.model.settings import HashedLines
from gpusetup.model.stack import MatrixStamp
from gpusetup.model.tables import WheelsFile
from gpusetup.plan.install import install_of
from gpusetup.plan.lock import lock_of
from tests.hosts.machines import changed
from tests.records import record
from tests.unit.plan.conftest import asked, drafted, host, nvidia_ubuntu, planner, resolved
from tests.unit.plan.test_record import STACK

LINE = "torch==2.14.1"
LIMITED = (LINE, "cuda-bindings<13.1", "nvidia-nvjitlink<13.1")
NEWER = (LINE, "cuda-bindings<13.4", "nvidia-nvjitlink<13.4")


bare = host("ubuntu24.04-h200-keep")


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
def test_an_environment_is_made_anew_only_where_a_wheel_is_beyond_its_limit(lines, nvjitlink, upgrade, becomes, todo):
    assert planned(planner, with_environment(bare, lines, nvjitlink), upgrade=upgrade) == (becomes, todo)


def test_what_the_probe_does_not_list_is_judged_by_the_record():
    """A lock with hashes names dozens of packages; the probe tells of the frameworks alone."""
    lines = ("torch==2.14.1 --hash=sha256:aa", "networkx==3.5 --hash=sha256:bb")
    known = {"torch": "2.14.1", "networkx": "3.5"}
    assert lacking(lines, with_environment(bare, lines, "13.0.88", packages=known), asked(LINE)) == []
    damaged = with_environment(bare, lines, "13.0.88", packages=known, now="its packages were changed")
    assert lacking(lines, damaged, asked(LINE)) == [lines[1]]
    assert lacking(lines, bare, asked(LINE)) == list(lines)


def test_hashes_of_a_lock_hold_whatever_its_limits_are():
    """A host may keep another driver than the one that the lock was made for."""
    hashed = ("torch==2.14.1 --hash=sha256:aa", "nvidia-nvjitlink==13.2.86 --hash=sha256:bb")
    lines = (LINE, "cuda-bindings<13.3", "nvidia-nvjitlink<13.3")
    locked = HashedLines(lines=lines, hashed=hashed, python="3.12", arch="x86_64")
    assert planned(planner, bare, hashed=(locked,))[0] == hashed


CLOSURES = {"frame==1": ["frame==1", "nvidia-cublas==13.0"], "Array[ctk]==2": ["array==2", "nvidia-cublas==13.1"]}
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


def sized(facts, wish):
    """Plan a wish whose packages are five megabytes; return the plan and its text."""
    draft = drafted(planner, facts, asked(wish), nvidia_ubuntu)
    plan = planner.third(draft, Preview(transaction=PreviewTransaction(download_bytes=5_000_000)))
    return plan, plan_text(Plan(matrix=MatrixStamp(date="d", digest="x"), hosts={"a": plan}))


def test_measured_wheels_count_and_their_room_is_asked_for():
    plan, text = sized(bare, "cupy")
    room = disk_space_of(plan.variables.gpu_python_requirements, "x86_64", matrix().wheels)
    assert room.unknown == ()
    assert room.installed > room.download > 10_000_000
    assert (plan.wheel_bytes, plan.package_bytes) == (room.download, 5_000_000)
    assert plan.download_bytes == room.download + 5_000_000
    assert plan.variables.gpu_preflight_space_mb == {"/opt/gpusetup": -(-room.peak >> 20)}
    assert "of it Python packages" in text


def test_what_nobody_measured_is_said():
    plan, text = sized(bare, "torch==2.6.*+cu124")
    assert plan.download_bytes is plan.wheel_bytes is None
    assert [text for text in plan.warnings if "the size of torch==2.6.0 is not known" in text]
    assert "5 MB of packages, and Python packages of unknown size" in text


def test_without_python_packages_all_is_as_it_was():
    plan, text = sized(changed(bare, driver=None), "driver")
    assert (plan.download_bytes, plan.wheel_bytes) == (5_000_000, 0)
    assert plan.variables.gpu_preflight_space_mb is msgspec.UNSET
    assert "  download 5 MB\n" in text


def caps(*words, driver=None):
    return compiler_caps(resolved(*words, gpus=("h100",), driver=driver).stack, matrix(), toolkit=False)


def below(limit, *names):
    return tuple(f"{name}<{limit}" for name in names)


TORCH = ("cuda-bindings", "nvidia-nvjitlink")
COMPILER = ("nvidia-cuda-crt", "nvidia-cuda-nvcc")


@pytest.mark.parametrize(
    ("words", "driver", "expected"),
    [
        ("torch==2.14.* driver==580.*", None, below("13.1", *TORCH)),
        ("torch==2.14.* driver==590.*", None, below("13.2", *TORCH)),
        ("torch==2.14.* driver==595.*", None, below("13.3", *TORCH)),
        ("torch==2.14.*", "580.95.05", below("13.1", *TORCH)),  # a driver that stays
        ("torch==2.15.0+cu132 driver==580.*", None, below("13.3", *TORCH)),  # never below the CUDA that torch pins
        # nvcc brings crt, without naming a version
        ("vllm==0.33.0 driver==580.*", None, below("13.1", "cuda-bindings", *COMPILER, "nvidia-nvjitlink", "nvidia-nvvm")),
        ("jax==0.12.* driver==580.*", None, below("13.1", *COMPILER, "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-nvvm")),
        ("torch==2.6.*", None, ()),  # everything is pinned
        ("torch==2.10.*", None, ()),
        ("torch==2.14.1+cu126 driver==580.*", None, ()),  # an older major, which the driver takes whole
        ("cupy driver==580.*", None, ()),  # on a toolkit of the system
        ("jax==0.4.31 driver==535.*", None, ()),  # limits are known for CUDA 13 alone
    ],
)  # fmt: skip
def test_the_driver_decides_the_limit(words, driver, expected):
    assert caps(*words.split(), driver=driver) == expected


def test_the_part_of_the_toolkit_that_floats_beside_cupy_is_limited_where_it_comes_as_wheels():
    """The toolkit of CUDA 12 brings nvidia-nvjitlink-cu12; nvidia-nvjitlink begins with 13, and no release is below."""
    stack = resolved("cupy", "driver==580.*", gpus=("h100",)).stack
    assert python_requirements(stack, matrix())[-1] == "nvidia-nvjitlink<13.1"
    older = python_requirements(resolved("cupy", "driver==535.*", gpus=("t4",)).stack, matrix())
    assert older[0].startswith("cupy-cuda12x")
    assert not any("<" in line for line in (*python_requirements(stack, matrix(), wheels=()), *older))


def test_no_limit_where_nobody_knows_the_driver_s_cuda():
    stack = resolved("torch==2.14.*", gpus=("h100",)).stack
    for driver in (changed(stack.driver, branch="630"), None):
        assert compiler_caps(changed(stack, driver=driver), matrix(), toolkit=True) == ()


def test_locks_apply_and_lines_to_copy_have_them():
    answer = resolved("torch==2.14.*", "driver==580.*", gpus=("h100",), os="ubuntu24.04")
    limit = "nvidia-nvjitlink<13.1"
    lock, install = lock_of(answer, matrix()), install_of(answer, matrix())
    for lines in (lock.pip.system, lock.pip.wheels, python_requirements(answer.stack, matrix())):
        assert limit in lines
    for lines in (install.pip[-1:], install.uv[-1:], install.conda[-1:], install.docker):
        assert any(f"'{limit}'" in line for line in lines), "a shell must not take < for a redirection"
