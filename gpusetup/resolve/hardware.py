"""What the GPUs of a host ask: branch window, module flavour, first driver, code in every build and library."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpusetup.resolve import rules
from gpusetup.resolve.domains import DriverValue, JaxValue, NcclValue, TensorflowValue, TorchValue, Value
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.model.release import ArchCode
    from gpusetup.resolve.space import Space

__all__ = ["add_hardware", "code_of", "nccl_runs"]


def add_hardware(space: Space) -> None:
    """Add every rule about GPUs."""
    space.unary("torch-code-known", "torch", lambda value: value.build.code is not None)
    space.unary(
        "wheel-for-cpu",
        "torch",
        lambda value: value.build.code is None or code_of(space, value) is not None,
        subject=space.arch,
    )
    for gpu in space.gpus:
        _driver(space, gpu)
        _libraries(space, gpu)
        for name in FRAMEWORKS:
            _framework(space, gpu, name)


def _chosen_by_us(space: Space) -> bool:
    """Tell whether the driver is ours to choose; a product's floor binds only then."""
    asked = space.named.get("driver")
    exact = asked is not None and asked.specifier.startswith("==") and not {"*", ","} & set(asked.specifier)
    return space.request.driver is None and not exact


def _driver(space: Space, gpu: GpuKind) -> None:
    if gpu.module == "unknown":  # no driver branch speaks of it: Jetson
        there = (space.request.driver, space.request.installed_driver)
        space.unary("jetson-driver-elsewhere", "driver", lambda value: value.version in there, subject=gpu)
        return
    space.unary("gpu-driver-window", "driver", lambda value: rules.window_fits(value, gpu), subject=gpu)
    space.unary("module-flavour", "driver", lambda value: rules.module_fits(value, gpu), subject=gpu)
    if gpu.min_driver is not None and _chosen_by_us(space):
        floor, installed = nv(gpu.min_driver), space.request.installed_driver
        space.unary(
            "gpu-product-floor",
            "driver",
            lambda value: value.number >= floor or value.version == installed,
            subject=gpu,
            lasting=False,
        )


def _libraries(space: Space, gpu: GpuKind) -> None:
    cc = nv(gpu.cc)
    space.unary(
        "toolkit-targets-gpu",
        "cuda",
        lambda value: rules.compiles_for(space.matrix, value.release.minor, gpu.cc),
        subject=gpu,
    )
    space.unary("cudnn-support-row", "cudnn", lambda value: rules.cudnn_row_covers(value.row, gpu.cc), subject=gpu)
    space.unary(
        "cupy-gpu-window",
        "cupy",
        lambda value: (
            nv(value.release.cc_min) <= cc
            and (value.release.cc_max is None or cc.minor[0] <= nv(value.release.cc_max).minor[0])
        ),
        subject=gpu,
    )
    if "nccl" in space.named or space.request.gpu_count > 1 or len(space.gpus) > 1:
        space.unary("nccl-gpu-code", "nccl", lambda value: nccl_runs(value, gpu.cc), subject=gpu)


def nccl_runs(value: NcclValue, cc: str) -> bool:
    """Tell whether an NCCL build has code for the GPU; a build nobody looked into is judged by its siblings."""
    builds = [value.build] if value.build.targets else []
    builds = builds or [
        build
        for build in value.release.builds
        if build.targets and rules.major(build.cuda) == rules.major(value.build.cuda)
    ]
    return not builds or any(rules.way_of(build.targets, build.ptx, cc) is not None for build in builds)


def code_of(space: Space, value: Value) -> ArchCode | None:
    """Return the GPU code inside a framework's wheel for this host's CPU."""
    if isinstance(value, TorchValue):
        return value.build.code_on(space.arch)
    return value.release.code if isinstance(value, TensorflowValue | JaxValue) else None


def _framework(space: Space, gpu: GpuKind, name: str) -> None:
    if name not in space.values:
        return

    def way(value: Value) -> str | None:
        return rules.code_for(code_of(space, value), gpu.cc)

    if name == "tensorflow":
        space.unary(
            "tensorflow-fails-on-gpu",
            name,
            lambda value: rules.way_of(value.release.fails_on, (), gpu.cc) is None,
            subject=gpu,
        )
    if name == "jax":
        space.unary("jax-gpu-floor", name, lambda value: nv(value.release.min_cc) <= nv(gpu.cc), subject=gpu)
    rule = "torch-needs-code-for-gpu" if name == "torch" else "framework-needs-code-for-gpu"
    space.unary(rule, name, lambda value: way(value) is not None, subject=gpu)
    if any(way(value) == "ptx" for value in space.values[name]):
        drivers = {value.version: value for value in space.values["driver"]}
        space.pair(
            "ptx-needs-native-driver",
            ("driver", lambda value: value.version),
            (name, lambda value: space.need(value) if way(value) == "ptx" else None),
            lambda version, need: (
                need is None
                or rules.relation(space.matrix, cast("DriverValue", drivers[version]), need, forward=False)
                in ("native", "backward")
            ),
            subject=gpu,
        )
