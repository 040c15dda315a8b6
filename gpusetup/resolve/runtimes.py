"""Rules between components: CUDA runtimes and drivers, libraries and runtimes, frameworks in one environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gpusetup.resolve import rules
from gpusetup.resolve.domains import PYTHONS, DriverValue, JaxValue, TensorflowValue, TorchValue, Value
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.resolve.space import Space

OTHERS = ("3.12", "3.13", "3.11", "3.14", "3.10", "3.9", "3.8", "3.15", "3.7", "3.6")
"""The Pythons to try instead of a system's own, the one with the most wheels first."""


def pythons(space: Space) -> tuple[str, ...]:
    """Return the Pythons that the host has or packages, the preferred one first; empty when unknown."""
    if space.request.pythons is not None:
        return space.request.pythons
    system = space.os
    if system is None or system.python == "unknown":
        return ()
    return (system.python, *(row.version for row in system.pythons if not row.prerelease))


def add_pythons(space: Space) -> None:
    """Limit Python to what the system has or packages, unless the request names one."""
    known = pythons(space)
    if known and "python" not in space.named:
        space.unary("distribution-python", "python", lambda value: value.version in known, subject=(space.os, known))


def python_rank(space: Space) -> Callable[[Value], Any]:
    """Return a rank: the system's own Python, then its other packages in order, then the newest."""
    known = {version: index for index, version in enumerate(pythons(space))}
    newest = {version: index for index, version in enumerate(reversed(PYTHONS))}
    return lambda value: (known.get(value.version, len(known)), newest[value.version])


def own_python(space: Space) -> str:
    """Return the Python that the system calls python3, or "unknown"."""
    return next(iter(pythons(space)), "unknown")


_SHARED_MAJOR = (
    ("torch", "cuda"),
    ("tensorflow", "cuda"),
    ("jax", "cuda"),
    ("torch", "tensorflow"),
    ("torch", "jax"),
    ("tensorflow", "jax"),
    ("nccl", "cuda"),
    ("torch", "nccl"),
    ("tensorflow", "nccl"),
    ("jax", "nccl"),
)


def add_runtimes(space: Space) -> None:
    """Add every rule between driver, CUDA runtimes, libraries, frameworks and Python."""
    add_pythons(space)
    _drivers(space)
    _one_major(space)
    _cudnn(space)
    for first, second in (("torch", "tensorflow"), ("torch", "jax"), ("tensorflow", "jax")):
        space.pair(
            "framework-pins-agree",
            (first, lambda value: tuple(_pins(value).items())),
            (second, lambda value: tuple(_pins(value).items())),
            lambda one, other: rules.pins_agree(dict(one), dict(other)),
        )


def _drivers(space: Space) -> None:
    drivers = {value.version: value for value in space.values["driver"]}

    def stands(version: str, need: rules.CudaNeed) -> bool:
        driver = cast("DriverValue", drivers[version])
        found = rules.relation(space.matrix, driver, need, forward=space.forward)
        return found in ("native", "backward") if space.request.native else found is not None

    for name in ("cuda", *FRAMEWORKS):
        space.pair("driver-runs-cuda", ("driver", lambda value: value.version), (name, space.need), stands)
    space.pair(
        "jax-driver-floor",
        ("driver", lambda value: value.version),
        ("jax", lambda value: value.release.min_driver),
        lambda version, floor: nv(version) >= nv(floor),
    )


def _one_major(space: Space) -> None:
    for first, second in _SHARED_MAJOR:
        space.pair(
            "one-cuda-major", (first, space.cuda_major), (second, space.cuda_major), lambda one, other: one == other
        )
    for name in ("cuda", *FRAMEWORKS):
        space.pair(
            "one-cuda-major",
            ("cupy", lambda value: frozenset(rules.major(minor) for minor in value.release.cuda)),
            (name, space.cuda_major),
            lambda majors, wanted: wanted in majors,
        )


def _cudnn(space: Space) -> None:
    space.pair(
        "cudnn-takes-cuda",
        ("cudnn", lambda value: (value.cuda_majors, value.row)),
        ("cuda", lambda value: value.release.minor),
        lambda key, minor: rules.major(minor) in key[0] and rules.cudnn_row_takes(key[1], minor),
    )
    space.pair(
        "cudnn-driver-floor",
        ("cudnn", lambda value: value.row.min_driver),
        ("driver", lambda value: value.version),
        lambda floor, version: floor is None or nv(version) >= nv(floor),
    )
    space.pair(
        "torch-pins-cudnn",
        ("torch", lambda value: (value.build.cudnn, rules.major(value.build.cuda))),
        ("cudnn", lambda value: (nv(value.version).numbers[:3], value.cuda_majors)),
        lambda torch, cudnn: torch[1] in cudnn[1] and (torch[0] is None or nv(torch[0]).numbers[:3] == cudnn[0]),
    )
    for name in ("tensorflow", "jax"):
        space.pair(
            "framework-takes-cudnn",
            (name, lambda value: (tuple(value.release.pins.items()), space.cuda_major(value))),
            ("cudnn", lambda value: (value.version, value.cuda_majors)),
            _takes_cudnn,
        )


def _takes_cudnn(framework: Any, cudnn: Any) -> bool:
    pins, cuda_major = dict(framework[0]), framework[1]
    if cuda_major not in cudnn[1]:
        return False
    pin = pins.get(f"nvidia-cudnn-cu{cuda_major}")
    return pin is None or rules.pins_agree({"cudnn": pin}, {"cudnn": cudnn[0]})


def _pins(value: Value) -> dict[str, str]:
    """Return a framework's known requirements on CUDA wheels."""
    if isinstance(value, TorchValue):
        if value.build.default:
            return value.release.pins
        suffix = f"cu{rules.major(value.build.cuda)}"
        known = {f"nvidia-cudnn-{suffix}": value.build.cudnn, f"nvidia-nccl-{suffix}": value.build.nccl}
        return {name: version for name, version in known.items() if version}
    return value.release.pins if isinstance(value, TensorflowValue | JaxValue) else {}
