"""Rules from the host's GPUs: driver branches, module flavour, first driver, GPU code in builds and libraries."""

from functools import partial
from typing import cast

from msgspec import Struct

from gpusetup.matrix.gpus import GpuKind
from gpusetup.model.release import ArchCode, CudnnSupport
from gpusetup.resolve import rules
from gpusetup.resolve.domains import (
    CudnnValue,
    DriverValue,
    JaxValue,
    NcclValue,
    PackageValue,
    TensorflowValue,
    TorchValue,
    Value,
    domain,
    rows_of_cudnn,
)
from gpusetup.resolve.space import FRAMEWORKS, Space
from gpusetup.versions import nv


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
    """Return whether gpusetup chooses the driver: only then does a product's first driver bind."""
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
    covers = partial(rules.cudnn_row_covers, space.matrix)
    space.unary("cudnn-support-row", "cudnn", lambda value: covers(value.row, gpu.cc), subject=gpu)
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
    """Return whether an NCCL build has code for the GPU; an unmeasured build counts as its release's other builds."""
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
    space.unary(f"{name}-needs-code-for-gpu", name, lambda value: way(value) is not None, subject=gpu)
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


def uncovered_libraries(space: Space, value: TorchValue) -> list[str]:
    """Return the libraries inside a torch wheel that do not support every GPU of the host."""
    missing = []
    build = value.build
    for gpu in space.gpus:
        if build.cudnn is not None and not _bundled_cudnn_covers(space, build.cudnn, gpu.cc):
            missing.append(f"cuDNN {build.cudnn} for {gpu.label} ({gpu.cc})")
        if build.nccl is not None and not _bundled_nccl_runs(space, build.nccl, rules.major(build.cuda), gpu.cc):
            missing.append(f"NCCL {build.nccl} for {gpu.label} ({gpu.cc})")
    return missing


def _bundled_cudnn_covers(space: Space, version: str, cc: str) -> bool:
    rows = rows_of_cudnn(space.matrix, version)
    return not rows or any(rules.cudnn_row_covers(space.matrix, row, cc) for row in rows)


def _bundled_nccl_runs(space: Space, version: str, cuda_major: int, cc: str) -> bool:
    values = [cast("NcclValue", value) for value in domain("nccl", space.matrix, space.request)]
    same = [
        value
        for value in values
        if value.version == version and rules.major(value.build.cuda) == cuda_major and value.build.targets
    ]
    return not same or any(nccl_runs(value, cc) for value in same)


class CudnnLimit(Struct, frozen=True):
    """The upper limit on a framework's cuDNN, where pip's newest release would have dropped a GPU of the host."""

    gpu: "GpuKind"
    package: str
    last: str
    """The newest release in the framework's range that supports the GPU; empty when none does."""
    below: str
    """The first version above `last`."""

    @property
    def requirement(self) -> str:
        """Return the limit as a pip requirement."""
        return f"{self.package}<{self.below}"


def limits_of(space: Space, value: Value) -> tuple[str, ...]:
    """Return the pip requirements that keep a framework's libraries at releases that support the host's GPUs."""
    found, limit = list[str](), cudnn_limit(space, value)
    if isinstance(value, JaxValue):
        package, pin = f"nvidia-cudnn-cu{value.release.cuda_major}", space.cudnn_pin(value)
        found += [package + pin] if pin != value.release.pins.get(package, "") else []
    return (*found, limit.requirement) if limit is not None and limit.last else tuple(found)


def cudnn_limit(space: Space, value: Value) -> CudnnLimit | None:
    """Return the limit that the cuDNN of a framework or package needs here; None when pip's newest supports every GPU.

    TensorFlow, JAX and ONNX Runtime require a range (`nvidia-cudnn-cu12>=9.10.2.21,<10`), and pip installs the newest
    release in it, which may have dropped the host's GPU. Beside torch, torch's own cuDNN counts.
    """
    pins: dict[str, str] = {}
    if isinstance(value, TensorflowValue | JaxValue) and value.release.pins:
        pins = {f"nvidia-cudnn-cu{space.cuda_major(value)}": space.cudnn_pin(value) or "any"}
    elif isinstance(value, PackageValue) and "torch" not in space.values:
        added = (text.partition("==") for text in value.release.adds)
        pins = value.release.requires | {name: f"=={version}" for name, equals, version in added if equals}
    package = next((name for name in pins if name.startswith("nvidia-cudnn-cu")), "")
    pin, major = pins.get(package, "any"), int(package[-2:] or 0)
    if pin == "any" or pin[:1].isdigit():
        return None
    limits = [limit for gpu in space.gpus if (limit := _limit_for(space, gpu, major, package, pin)) is not None]
    return min(limits, key=lambda limit: nv(limit.below), default=None)


def _limit_for(space: Space, gpu: GpuKind, major: int, package: str, pin: str) -> CudnnLimit | None:
    rows: dict[str, list[CudnnSupport]] = {}
    for item in cast("list[CudnnValue]", domain("cudnn", space.matrix, space.request)):
        if major in item.cuda_majors and rules.pins_agree({"cudnn": pin}, {"cudnn": item.version}):
            speaking = rows.setdefault(item.version, [])
            speaking += [item.row] if major in {rules.major(minor) for minor in item.row.cuda} else []
    # A release without a row is not known to have dropped any GPU.
    covers = {
        version: not speaking or any(rules.cudnn_row_covers(space.matrix, row, gpu.cc) for row in speaking)
        for version, speaking in rows.items()
    }
    newest = rules.newest(covers)
    if newest is None or covers[newest]:
        return None
    last = rules.newest(version for version, covered in covers.items() if covered) or ""
    first = min((version for version in covers if not last or nv(version) > nv(last)), key=nv)
    return CudnnLimit(gpu, package, last, _shortest_above(first, last))


def _shortest_above(version: str, last: str) -> str:
    parts = version.split(".")
    beginnings = (".".join(parts[:count]) for count in range(2, len(parts)))
    return next((text for text in beginnings if last and nv(text) > nv(last)), version)
