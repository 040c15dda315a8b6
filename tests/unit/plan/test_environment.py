"""A plan's Python environment: limits that keep compiler wheels at the driver's CUDA, when it is made anew, what it downloads."""

import pytest

from gpusetup.cli.plan import plan_text
from gpusetup.components.python.environments import lacking
from gpusetup.components.python.requirements import compiler_caps, python_requirements
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import SCHEMA
from gpusetup.model.facts import Python
from gpusetup.model.plan import Plan, Preview, PreviewTransaction
from gpusetup.model.settings import HashedLines
from gpusetup.model.stack import MatrixStamp
from tests.hosts.machines import changed
from tests.records import record
from tests.refusals import refused
from tests.unit.plan.conftest import asked, drafted, host, nvidia_ubuntu, planner, resolved
from tests.unit.plan.test_record import STACK

bare = host("ubuntu24.04-h200-keep")


def test_hashes_of_a_lock_hold_whatever_its_limits_are():
    """A host may keep another driver than the one that the lock was made for."""
    hashed = ("torch==2.14.1 --hash=sha256:aa", "nvidia-nvjitlink==13.2.86 --hash=sha256:bb")
    lines = ("torch==2.14.1", "cuda-bindings<13.3", "nvidia-nvjitlink<13.3")
    locked = HashedLines(lines=lines, hashed=hashed, python="3.12", arch="x86_64")
    plan = planner.first(bare, asked(lines[0], hashed=(locked,))).plan
    assert plan.variables.gpu_python_requirements == hashed
    with refused(PreflightError, "GS-348"):
        planner.first(bare, asked(lines[0], hashed=(changed(locked, arch="aarch64"),)))
    for other, reference in (({"lines": ("torch==2.13.0",)}, "GS-347"), ({"python": "3.8"}, "GS-348")):
        with refused(PreflightError, reference):
            planner.first(bare, asked(lines[0], hashed=(changed(locked, **other),)))


def test_what_nobody_measured_is_said():
    draft = drafted(planner, bare, asked("torch==2.6.*+cu124"), nvidia_ubuntu)
    plan = planner.third(draft, Preview(transaction=PreviewTransaction(download_bytes=5_000_000)))
    text = plan_text(Plan(matrix=MatrixStamp(date="d", digest="x"), hosts={"a": plan}))
    assert plan.download_bytes is plan.wheel_bytes is None
    assert [text for text in plan.warnings if "the size of torch==2.6.0 is not known" in text]
    assert "5 MB of packages, and Python packages of unknown size" in text


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
    stack = resolved(*words.split(), gpus=("h100",), driver=driver).stack
    assert compiler_caps(stack, matrix(), toolkit=False) == expected


def test_the_part_of_the_toolkit_that_floats_beside_cupy_is_limited_where_it_comes_as_wheels():
    """The toolkit of CUDA 12 brings nvidia-nvjitlink-cu12; nvidia-nvjitlink begins with 13, and no release is below."""
    stack = resolved("cupy", "driver==580.*", gpus=("h100",)).stack
    assert python_requirements(stack, matrix())[-1] == "nvidia-nvjitlink<13.1"
    older = python_requirements(resolved("cupy", "driver==535.*", gpus=("t4",)).stack, matrix())
    assert older[0].startswith("cupy-cuda12x")
    assert not any("<" in line for line in (*python_requirements(stack, matrix(), wheels=()), *older))


LINE = "torch==2.14.1"
LIMITED = (LINE, "cuda-bindings<13.1", "nvidia-nvjitlink<13.1")
NEWER = (LINE, "cuda-bindings<13.4", "nvidia-nvjitlink<13.4")


def with_environment(lines, nvjitlink, **expect):
    """The facts of a host whose environment was made of these lines, and what is in it now."""
    wanted = {"manage_driver": False, "packages": None, "requirements": lines, "adopted": [], "services": []}
    python = {"path": "/opt/gpusetup", "packages": {"torch": "2.14.1"}, **expect}
    lock = {"schema": SCHEMA, "key": "another matrix", "stack": STACK, "wanted": wanted}
    packages = {"torch": "2.14.1", "nvidia-nvjitlink": nvjitlink}
    there = Python(path="/opt/gpusetup/bin/python3", version="3.12", ensurepip=True, packages=packages)
    return changed(bare, state=record({"lock": lock, "expect": {"python": python}}), pythons=(*bare.pythons, there))


@pytest.mark.parametrize(
    ("lines", "nvjitlink", "upgrade", "becomes", "anew"),
    [
        ((LINE,), "13.5.37", False, (LINE,), False),  # from before the limits: it stays as it was made
        ((LINE,), "13.0.88", True, (LINE,), False),
        ((LINE,), "13.5.37", True, LIMITED, True),
        (NEWER, "13.0.88", False, NEWER, False),  # limits on record follow a driver that is older now
        (NEWER, "13.3.73", False, LIMITED, True),
    ],
)
def test_an_environment_is_made_anew_only_where_a_wheel_is_beyond_its_limit(lines, nvjitlink, upgrade, becomes, anew):
    plan = planner.first(with_environment(lines, nvjitlink), asked(LINE, upgrade=upgrade)).plan
    assert tuple(plan.variables.gpu_python_requirements or ()) == becomes
    assert ("python" in [action.kind for action in plan.actions]) is anew


def test_what_the_probe_does_not_list_is_judged_by_the_record():
    """A lock with hashes names dozens of packages; the probe tells of the frameworks alone."""
    lines = ("torch==2.14.1 --hash=sha256:aa", "networkx==3.5 --hash=sha256:bb")
    known = {"torch": "2.14.1", "networkx": "3.5"}
    assert lacking(lines, with_environment(lines, "13.0.88", packages=known), asked(LINE)) == []
    damaged = with_environment(lines, "13.0.88", packages=known, now="its packages were changed")
    assert lacking(lines, damaged, asked(LINE)) == [lines[1]]


def test_without_python_packages_the_download_is_that_of_the_packages():
    draft = drafted(planner, changed(bare, driver=None), asked("driver"), nvidia_ubuntu)
    plan = planner.third(draft, Preview(transaction=PreviewTransaction(download_bytes=5_000_000)))
    assert (plan.download_bytes, plan.wheel_bytes) == (5_000_000, 0)
