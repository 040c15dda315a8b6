"""`gpusetup matrix`: return every matrix row that fits a request, first the one that `resolve` chooses, then by age."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from gpusetup.errors import NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.release import Toolchain
from gpusetup.model.request import PACKAGES, Request, Requirement
from gpusetup.resolve import rules
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import (
    CudaValue,
    CudnnValue,
    CupyValue,
    DriverValue,
    JaxValue,
    NcclValue,
    PackageValue,
    TensorflowValue,
    TorchValue,
    Value,
    number,
    parsed,
)
from gpusetup.resolve.hardware import code_of
from gpusetup.resolve.naming import cite
from gpusetup.resolve.preferences import best
from gpusetup.resolve.search import bits, minimal_conflict
from gpusetup.resolve.space import Space
from gpusetup.versions import nv

LEADS = ("torch", "tensorflow", "jax", "cupy")
"""The frameworks that have rows."""
_LIBRARIES = ("cudnn", "nccl", "cuda")

Row = dict[str, Any]


def lookup(request: Request, matrix: Matrix) -> list[Row]:
    """Return the rows that fit; raise NoStackError with the reason when none does."""
    lead = lead_of(request)
    if lead not in {item.component for item in request.requirements}:
        request = msgspec.structs.replace(request, requirements=(*request.requirements, Requirement(component=lead)))
    space = build(matrix, request)
    solution, only_built = None, False
    if lead in PACKAGES and not request.allow_builds:  # rows include source releases, which `resolve` does not choose
        solution = best(space)
        only_built = solution is None
        space = build(matrix, msgspec.structs.replace(request, allow_builds=True))
    values = fitting(space, lead)
    if solution is None:
        solution = best(space) if len(values) > 1 else None
    because = ""
    if solution is not None:
        if values[0] != solution[lead]:
            from gpusetup.resolve.reasons import rather

            because = rather(space, solution, lead, values[0])
        values.sort(key=lambda value: value != solution[lead])  # stable: the others stay newest first
    rows = [_row(space, lead, value) | {"chosen": index == 0 and not only_built} for index, value in enumerate(values)]
    if because:
        rows[0]["because"] = because
    if not rows:
        from gpusetup.resolve.reasons import conflict

        told = conflict(space, minimal_conflict(space.problem()))
        raise NoStackError(
            "GS-211",
            "nothing in the matrix matches",
            document={"schema": "gpusetup/matrix/1", "ok": False, "rows": [], "conflict": told, "suggestions": []},
            note="\n  ".join(f"- {item['text']}" for item in told),
            hint="`gpusetup resolve` with the same arguments suggests a change that works",
        )
    return rows


def newest_for_driver(request: Request, matrix: Matrix) -> str:
    """Return a sentence about the newest CUDA that a driver supports natively, and the newest that it runs at all."""
    wish = msgspec.structs.replace(request, requirements=(*request.requirements, Requirement(component="cuda")))
    space = build(matrix, wish)
    driver = next(value for value in space.values["driver"] if value.version == request.driver)
    driver = cast("DriverValue", driver)
    ways = [(value.version, space.relation(driver, value)) for value in fitting(space, "cuda")]
    own = next((version for version, way in ways if way in ("native", "backward")), "")
    last, way = ways[0]
    text = f"Driver {request.driver} (R{driver.branch.branch}): "
    if not own:
        return f"{text}CUDA {last} is the newest that runs, by {_WAYS[str(way)]}."
    text += f"CUDA {own} is the newest that it supports itself"
    return f"{text}; up to CUDA {last} runs by {_WAYS[str(way)]}." if way not in ("native", "backward") else f"{text}."


_WAYS = {
    "minor-version": "minor-version compatibility (programs that hand newer PTX to the driver fail)",
    "forward": "forward compatibility (a cuda-compat package)",
}


def lead_of(request: Request) -> str:
    """Return the component that a request's rows list."""
    named = {item.component for item in request.requirements}
    return next((name for name in (*PACKAGES, *LEADS, *_LIBRARIES) if name in named), "cuda")


def fitting(space: Space, component: str) -> list[Value]:
    """Return the values of a component that occur in some solution, newest first."""
    problem = space.problem()
    domains = problem.initial()
    if domains is None:
        return []
    values = space.values[component]
    found, witnessed = [], 0
    for index in bits(domains[component]):
        if not witnessed >> index & 1:
            solution = problem.solve(problem.restrict(domains, component, 1 << index))
            if solution is None:
                continue
            witnessed |= solution[component]
        found.append(values[index])
    return sorted(found, key=_order, reverse=True)


def _order(value: Value) -> tuple[Any, ...]:
    if isinstance(value, TorchValue):
        return (number(value), value.build.default, nv(value.build.cuda))
    if isinstance(value, JaxValue):
        return (number(value), value.release.cuda_major)
    if isinstance(value, CupyValue):
        return (number(value), value.release.package)
    if isinstance(value, PackageValue):
        return (not parsed(value.version).is_prerelease, number(value))
    return (number(value),)


def _span_of(toolchain: Toolchain | None) -> list[str]:
    """Return the capabilities a toolkit compiles for: the measured targets, else the known ends of its range."""
    if toolchain is None:
        return []
    return list(toolchain.targets) or [cc for cc in (toolchain.cc_min, toolchain.cc_max) if cc]


def _row(space: Space, lead: str, value: Value) -> Row:
    matrix = space.matrix
    row: Row = {lead: value.version, **_particulars(space, value)}
    if isinstance(value, CudnnValue):
        return row | {
            "confidence": value.confidence,
            "sources": [cite(matrix, lead, value.row)],
            "note": value.row.note,
        }
    record = value.build if isinstance(value, TorchValue) else cast("Any", value).release
    if not isinstance(value, NcclValue | PackageValue):
        row |= dict(_drivers(space, value))
    return row | {"confidence": record.confidence, "sources": [cite(matrix, lead, record)], "note": record.note}


def _drivers(space: Space, value: Value) -> Iterator[tuple[str, str | None]]:
    """Yield the lowest driver that runs a row, and the lowest that runs it natively."""
    if isinstance(value, CupyValue):
        lowest = min(value.release.cuda, key=nv)
        need = rules.need_of_minor(space.matrix, lowest)
    else:
        need = space.need(value)
    minor, branch, listed = need
    native = listed or f"R{branch}"
    floor = next((row.min_driver for row in space.matrix.cuda.majors if row.major == rules.major(minor)), None)
    low = floor if floor is not None and rules.major(minor) >= rules.FIRST_WITH_MINOR_COMPATIBILITY else native
    if isinstance(value, JaxValue):
        low = max(low, value.release.min_driver, key=lambda text: nv(text.lstrip("R")))
    yield "driver_min", low
    yield "driver_native", native


def _particulars(space: Space, value: Value) -> Row:
    if isinstance(value, TorchValue):
        code = code_of(space, value)
        return {
            "variant": value.build.variant,
            "cuda": value.build.cuda,
            "cudnn": value.build.cudnn,
            "nccl": value.build.nccl,
            "libraries_confidence": value.build.libs_confidence,
            "python": list(value.release.pythons),
            "archs": list(code.targets) if code else [],
            "default": space.on_pypi(value),
        }
    if isinstance(value, TensorflowValue):
        release = value.release
        return {
            "cuda": release.cuda,
            "cudnn": release.cudnn,
            "python": list(release.pythons.get(cast("Any", space.arch), ())),
            "archs": list(release.code.targets),
        }
    if isinstance(value, JaxValue):
        return {
            "extra": value.release.extra,
            "cuda": space.minor(value),
            "python": list(value.release.pythons),
            "archs": list(value.release.code.targets),
        }
    if isinstance(value, CupyValue):
        wheel = value.release
        return {
            "package": wheel.package,
            "cuda": list(wheel.cuda),
            "python": list(wheel.pythons.get(cast("Any", space.arch), ())),
            "archs": [cc for cc in (wheel.cc_min, wheel.cc_max) if cc],
        }
    if isinstance(value, PackageValue):
        return _package(space, value)
    if isinstance(value, CudnnValue):
        support = value.row
        return {
            "cuda_majors": list(value.cuda_majors),
            "cuda": list(support.cuda),
            "driver_min": support.min_driver,
            "archs": [cc for cc in (support.cc_min, support.cc_max) if cc],
            "as_in": support.version if value.leaning else None,
        }
    if isinstance(value, NcclValue):
        build_ = value.build
        return {
            "cuda": build_.cuda,
            "kind": build_.kind,
            "package": build_.version,
            "date": value.release.date,
            "archs": list(build_.targets),
            "ptx": list(build_.ptx),
        }
    if isinstance(value, CudaValue):
        toolchain = next((item for item in space.matrix.cuda.toolchains if item.minor == value.release.minor), None)
        return {
            "label": value.release.label,
            "wheel": value.release.wheel,
            "archs": _span_of(toolchain),
            "gcc_max": toolchain.gcc_max if toolchain else None,
            "clang_max": toolchain.clang_max if toolchain else None,
            "installer_driver": value.release.installer_driver,
            "ptx": toolchain.ptx if toolchain else "",
        }
    raise TypeError(type(value).__name__)


def _matching_torch(space: Space, value: PackageValue) -> str | None:
    found = [row.version for row in space.matrix.torch.releases if row.companions.get(value.file.name) == value.version]
    return ", ".join(found) or None


def _package(space: Space, value: PackageValue) -> Row:
    """Return a package release's particulars; an unknown field is null, not empty."""
    release, arch = value.release, cast("Any", space.arch)
    floors = [
        row.min_driver for row in space.matrix.cuda.majors for cuda in release.cuda if row.major == rules.major(cuda)
    ]
    return {
        "date": release.date,
        "kind": release.kind,
        "cuda": list(release.cuda) or None,
        "torch": release.requires.get("torch") or _matching_torch(space, value),
        "pins": {name: text for name, text in release.requires.items() if text.startswith("==")},
        "requires": dict(release.requires),
        "python": list(release.pythons.get(arch, ())),
        "glibc": release.glibc.get(arch),
        "archs": list(release.code.targets) if release.code else [release.cc_min] if release.cc_min else None,
        "driver_min": min(floors, key=nv, default=None),
        "build": value.file.build if release.kind == "source" else "",
        "read": release.read,
    }
