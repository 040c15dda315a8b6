"""Compiler wheels never float past the driver: the requirements that are written keep them at its CUDA."""

import msgspec
import pytest
from packaging.requirements import Requirement as Pin

from gpusetup.components.python.requirements import compiler_caps, python_requirements
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.plan.install import install_of
from gpusetup.plan.lock import lock_of
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements


def caps(*words, driver=None, **about):
    wishes = parse_requirements(list(words))
    answer = resolve(Request(requirements=wishes, gpus=("h100",), driver=driver, **about), matrix())
    return compiler_caps(answer.stack, matrix(), toolkit=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("torch==2.14.*", "driver==580.*"), ("cuda-bindings<13.1", "nvidia-nvjitlink<13.1")),
        (("torch==2.14.*", "driver==590.*"), ("cuda-bindings<13.2", "nvidia-nvjitlink<13.2")),
        (("torch==2.14.*", "driver==595.*"), ("cuda-bindings<13.3", "nvidia-nvjitlink<13.3")),
        (
            ("vllm==0.33.0", "driver==580.*"),  # nvcc brings crt, without naming a version
            ("cuda-bindings<13.1", *(f"nvidia-{name}<13.1" for name in ("cuda-crt", "cuda-nvcc", "nvjitlink", "nvvm"))),
        ),
        (
            ("jax==0.12.*", "driver==580.*"),
            tuple(f"nvidia-{name}<13.1" for name in ("cuda-crt", "cuda-nvcc", "cuda-nvrtc", "nvjitlink", "nvvm")),
        ),
    ],
)
def test_the_driver_decides_the_limit(words, expected):
    assert caps(*words) == expected


def test_a_driver_that_stays_decides_too():
    assert caps("torch==2.14.*", driver="580.95.05") == ("cuda-bindings<13.1", "nvidia-nvjitlink<13.1")


def test_torch_is_never_held_below_the_cuda_that_it_pins():
    """Under minor-version compatibility the wheels of torch's own CUDA must still fit."""
    assert caps("torch==2.15.0+cu132", "driver==580.*") == ("cuda-bindings<13.3", "nvidia-nvjitlink<13.3")


@pytest.mark.parametrize(
    "words",
    [
        ("torch==2.6.*",),  # everything is pinned
        ("torch==2.10.*",),
        ("torch==2.14.1+cu126", "driver==580.*"),  # an older major, which the driver takes whole
        ("cupy", "driver==580.*"),  # on a toolkit of the system
        ("jax==0.4.31", "driver==535.*"),  # limits are known for CUDA 13 alone
    ],
)
def test_nothing_is_limited_where_nothing_floats(words):
    assert caps(*words) == ()


def test_the_part_of_the_toolkit_that_floats_beside_cupy_is_limited_where_it_comes_as_wheels():
    answer = resolve(Request(requirements=parse_requirements(["cupy", "driver==580.*"]), gpus=("h100",)), matrix())
    assert python_requirements(answer.stack, matrix())[-1] == "nvidia-nvjitlink<13.1"
    assert not any("<" in line for line in python_requirements(answer.stack, matrix(), wheels=()))


def test_wheels_that_have_their_cuda_in_the_name_get_no_limit_that_no_release_meets():
    """The toolkit of CUDA 12 brings nvidia-nvjitlink-cu12; nvidia-nvjitlink begins with 13."""
    answer = resolve(Request(requirements=parse_requirements(["cupy", "driver==535.*"]), gpus=("t4",)), matrix())
    lines = python_requirements(answer.stack, matrix())
    assert lines[0].startswith("cupy-cuda12x")
    assert not any("<" in line for line in lines)


def test_no_limit_where_nobody_knows_the_driver_s_cuda():
    answer = resolve(Request(requirements=parse_requirements(["torch==2.14.*"]), gpus=("h100",)), matrix())
    assert answer.stack.driver is not None
    unknown = msgspec.structs.replace(answer.stack.driver, branch="630")
    assert compiler_caps(msgspec.structs.replace(answer.stack, driver=unknown), matrix(), toolkit=True) == ()
    assert compiler_caps(msgspec.structs.replace(answer.stack, driver=None), matrix(), toolkit=True) == ()


def test_locks_apply_and_lines_to_copy_have_them():
    wishes = parse_requirements(["torch==2.14.*", "driver==580.*"])
    answer = resolve(Request(requirements=wishes, gpus=("h100",), os="ubuntu24.04"), matrix())
    limit = "nvidia-nvjitlink<13.1"
    lock, install = lock_of(answer, matrix()), install_of(answer, matrix())
    for lines in (lock.pip.system, lock.pip.wheels, python_requirements(answer.stack, matrix())):
        assert limit in lines
    for lines in (install.pip, install.uv, install.conda):
        assert f"'{limit}'" in lines[-1], "a shell must not take < for a redirection"
    assert any(f"'{limit}'" in line for line in install.docker)


@pytest.mark.parametrize("release", [row for row in matrix().torch.releases if "cuda-toolkit" in row.pins])
def test_no_limit_contradicts_what_torch_requires(release):
    """The lowest release that a limit leaves is one that torch takes."""
    build = next(item for item in matrix().torch.builds if item.version == release.version and item.default)
    for line in caps(f"torch=={release.version}+{build.variant}", "driver==580.*"):
        pin = Pin(line)
        asked = Pin(f"{pin.name}{release.pins.get(pin.name, '')}").specifier
        (limit,) = pin.specifier
        just_below = f"{limit.version.partition('.')[0]}.{int(limit.version.partition('.')[2]) - 1}.99"
        assert asked.contains(just_below)
