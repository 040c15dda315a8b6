"""Compiler wheels never float past the driver: the requirements that are written keep them at its CUDA."""

import pytest
from packaging.requirements import Requirement as Pin

from gpusetup.components.python.requirements import compiler_caps, python_requirements
from gpusetup.matrix.load import matrix
from gpusetup.plan.install import install_of
from gpusetup.plan.lock import lock_of
from tests.hosts.machines import changed
from tests.unit.plan.conftest import resolved


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


@pytest.mark.parametrize("release", [row for row in matrix().torch.releases if "cuda-toolkit" in row.pins])
def test_no_limit_contradicts_what_torch_requires(release):
    """The lowest release that a limit leaves is one that torch takes."""
    build = next(item for item in matrix().torch.builds if item.version == release.version and item.default)
    for pin in map(Pin, caps(f"torch=={release.version}+{build.variant}", "driver==580.*")):
        (limit,) = pin.specifier
        major, _, minor = limit.version.partition(".")
        assert Pin(f"{pin.name}{release.pins.get(pin.name, '')}").specifier.contains(f"{major}.{int(minor) - 1}.99")
