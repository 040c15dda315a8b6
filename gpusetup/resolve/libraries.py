"""The libraries that a framework brings: whether they support the GPUs of a host, and how far they may float."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec import Struct

from gpusetup.resolve import rules
from gpusetup.resolve.domains import CudnnValue, JaxValue, NcclValue, TensorflowValue, domain
from gpusetup.resolve.hardware import nccl_runs
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.model.release import CudnnSupport
    from gpusetup.resolve.domains import TorchValue, Value
    from gpusetup.resolve.space import Space

__all__ = ["CudnnLimit", "cudnn_limit", "limits_of", "uncovered_libraries"]


def uncovered_libraries(space: Space, value: TorchValue) -> list[str]:
    """Return the libraries inside a torch wheel that do not speak for every GPU of the host."""
    missing = []
    build = value.build
    for gpu in space.gpus:
        if build.cudnn is not None and not _bundled_cudnn_covers(space, build.cudnn, gpu.cc):
            missing.append(f"cuDNN {build.cudnn} for {gpu.label} ({gpu.cc})")
        if build.nccl is not None and not _bundled_nccl_runs(space, build.nccl, rules.major(build.cuda), gpu.cc):
            missing.append(f"NCCL {build.nccl} for {gpu.label} ({gpu.cc})")
    return missing


def _bundled_cudnn_covers(space: Space, version: str, cc: str) -> bool:
    key = nv(version).numbers[:3]
    values = [cast("CudnnValue", value) for value in domain("cudnn", space.matrix, space.request)]
    rows = [value.row for value in values if nv(value.version).numbers[:3] == key]
    return not rows or any(rules.cudnn_row_covers(row, cc) for row in rows)


def _bundled_nccl_runs(space: Space, version: str, cuda_major: int, cc: str) -> bool:
    values = [cast("NcclValue", value) for value in domain("nccl", space.matrix, space.request)]
    same = [
        value
        for value in values
        if value.version == version and rules.major(value.build.cuda) == cuda_major and value.build.targets
    ]
    return not same or any(nccl_runs(value, cc) for value in same)


class CudnnLimit(Struct, frozen=True):
    """How far the cuDNN that a framework asks for without an upper limit may go on the GPUs of a host."""

    gpu: "GpuKind"
    package: str
    last: str
    """The newest release within the framework's range that supports the GPU; empty where none does."""
    below: str
    """The first one after it."""

    @property
    def requirement(self) -> str:
        """Return the limit as pip reads it."""
        return f"{self.package}<{self.below}"


def limits_of(space: Space, value: Value) -> tuple[str, ...]:
    """Return the requirements that keep a framework's libraries within what the GPUs of the host can use."""
    limit = cudnn_limit(space, value)
    return (limit.requirement,) if limit is not None and limit.last else ()


def cudnn_limit(space: Space, value: Value) -> CudnnLimit | None:
    """Return the limit that a framework's cuDNN needs here; None where pip's newest serves every GPU.

    TensorFlow and JAX ask for a range (`nvidia-cudnn-cu12>=9.10.2.21,<10`), and pip takes its newest release, which
    may have dropped the host's GPU.
    """
    if not isinstance(value, TensorflowValue | JaxValue):
        return None
    major = space.cuda_major(value)
    package = f"nvidia-cudnn-cu{major}"
    pin = value.release.pins.get(package)
    if pin is None or pin[:1].isdigit():
        return None
    limits = [limit for gpu in space.gpus if (limit := _limit_for(space, gpu, major, package, pin)) is not None]
    return min(limits, key=lambda limit: nv(limit.below), default=None)


def _limit_for(space: Space, gpu: GpuKind, major: int, package: str, pin: str) -> CudnnLimit | None:
    rows: dict[str, list[CudnnSupport]] = {}
    for item in cast("list[CudnnValue]", domain("cudnn", space.matrix, space.request)):
        if major in item.cuda_majors and rules.pins_agree({"cudnn": pin}, {"cudnn": item.version}):
            speaking = rows.setdefault(item.version, [])
            speaking += [item.row] if major in {rules.major(minor) for minor in item.row.cuda} else []
    # A release that no row speaks of is not known to have dropped anything.
    covers = {
        version: not speaking or any(rules.cudnn_row_covers(row, gpu.cc) for row in speaking)
        for version, speaking in rows.items()
    }
    newest = rules.newest(covers)
    if newest is None or covers[newest]:
        return None
    last = rules.newest(version for version, covered in covers.items() if covered) or ""
    first = min((version for version in covers if not last or nv(version) > nv(last)), key=nv)
    return CudnnLimit(gpu, package, last, _shortest_above(first, last))


def _shortest_above(version: str, last: str) -> str:
    """Return the beginning of a version that is still newer than the last one that counts."""
    parts = version.split(".")
    beginnings = (".".join(parts[:count]) for count in range(2, len(parts)))
    return next((text for text in beginnings if last and nv(text) > nv(last)), version)
