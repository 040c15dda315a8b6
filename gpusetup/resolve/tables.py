"""Lookups without the resolver: drivers, GPUs, distributions, vGPU releases, Pythons and more as plain rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from msgspec.structs import replace

from gpusetup.errors import BadInputError, NoStackError
from gpusetup.matrix.gpus import GpuKind, find_gpu, gpus_named, kind_of
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.security import rows
from gpusetup.matrix.systems import files_of, find_system, hosts_that_take, systems_named
from gpusetup.model.platforms import Gpu, OsRelease, VgpuRelease
from gpusetup.model.record import Record
from gpusetup.model.release import Architecture, DriverBranch, DriverVersion
from gpusetup.model.request import DriverCandidate, Request, Requirement
from gpusetup.model.tables import GpuFigures
from gpusetup.resolve import rules
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import DriverValue, flavours_of, matches, parsed
from gpusetup.resolve.lookup import fitting
from gpusetup.resolve.naming import cite
from gpusetup.resolve.requests import gpus_of
from gpusetup.resolve.variants import machine_of
from gpusetup.resolve.variants import rows as feature_rows
from gpusetup.versions import nv

Row = dict[str, Any]

_FILTERS = {
    "driver": {"--gpu", "--os", "--arch", "--driver"}, "gpu": {"--gpu", "--arch", "--driver"},
    "mig": {"--gpu", "--arch", "--driver"}, "os": {"--os", "--arch"},
    "python": {"--os", "--arch"}, "vgpu": {"--driver"}, "cve": {"--driver"}, "instances": {"--gpu"},
    "variants": {"--gpu", "--driver"},
}  # fmt: skip
"""The options that can narrow each table."""
TABLES = tuple(_FILTERS)


def table_rows(name: str, wanted: str, request: Request, matrix: Matrix) -> list[Row]:
    """Return the rows of a table that match `wanted` (580.*, h100, ubuntu, 17) and the request's options."""
    _check_filters(name, request)
    found = list(_ROWS[name](wanted.strip(), request, matrix))
    if not found:
        raise _nothing(name, wanted, request)
    return found


def _check_filters(name: str, request: Request) -> None:
    given = {
        "--gpu": bool(request.gpus), "--os": request.os is not None, "--arch": request.arch is not None,
        "--driver": request.driver is not None, "--native": request.native, "--forward": request.forward,
    }  # fmt: skip
    for option, used in given.items():
        if used and option not in _FILTERS[name]:
            what, ways = f"`matrix {name}` cannot be narrowed by {option}", ", ".join(sorted(_FILTERS[name]))
            raise BadInputError("GS-135", what, path=option, hint=f"leave it out; this table can be narrowed by {ways}")


def _nothing(name: str, wanted: str, request: Request) -> NoStackError:
    wishes = [text for text in map(str, request.requirements) if text != name]
    asked = [text for text in (wanted, *wishes, *request.gpus, request.os, request.arch) if text]
    asked += [f"driver {request.driver}"] if request.driver else []
    text = f"no row of `matrix {name}` fits {' with '.join(asked) or 'this machine'}"
    hint = f"`gpusetup matrix {name}` lists them all"
    if name == "variants":
        text += ": wheel variants need a GPU and a loaded driver for it"
        hint = "name another machine's: gpusetup matrix variants --gpu h100 --driver 580.95.05"
    conflict = [{"rule": "requested", "text": text, "source": ""}]
    document = {"schema": "gpusetup/matrix/1", "ok": False, "rows": [], "conflict": conflict, "suggestions": []}
    return NoStackError("GS-211", text, document=document, hint=hint)


def _provenance(matrix: Matrix, component: str, record: Record) -> Row:
    return {"confidence": record.confidence, "sources": [cite(matrix, component, record)], "note": record.note}


# --- drivers ----------------------------------------------------------------------------------------------------------


def _drivers(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    """Yield one row per matching release if the query names any, else one for the newest of each branch."""
    branches = {branch.branch: branch for branch in matrix.driver.branches}
    kinds = [find_gpu(matrix, name) for name in request.gpus]
    releases = [item for item in matrix.driver.versions if item.platform == "linux" and item.branch in branches]
    hits = matches(Requirement(component="driver", specifier=wanted), [item.version for item in releases])
    if request.requirements or request.os or request.arch:
        # Without candidates, the resolver weighs the newest driver of a branch alone; without a wish, a CUDA too.
        every = tuple(DriverCandidate(version=item.version, modules=flavours_of(item.branch)) for item in releases)
        wishes = request.requirements or (Requirement(component="driver"),)
        asked = replace(request, requirements=wishes, driver_candidates=every)
        hits &= {value.version for value in fitting(build(matrix, asked), "driver")}
    newest: dict[int, str] = {}
    for item in sorted(releases, key=lambda item: nv(item.version), reverse=True):
        branch = branches[item.branch]
        if item.version not in hits or (request.driver and not f"{item.version}.".startswith(f"{request.driver}.")):
            continue
        if not wanted and request.driver is None and (newest.setdefault(item.branch, item.version) != item.version):
            continue
        modules = [flavour for flavour in flavours_of(item.branch) if _drives(matrix, item, branch, flavour, kinds)]
        if modules:
            yield {
                "driver": item.version, "branch": f"R{item.branch}", "kind": branch.kind, "date": item.date,
                "until": branch.eol, "supported": not branch.has_ended(matrix.date), "cuda": branch.cuda,
                "gpus": list(branch.architectures), "modules": modules, **_provenance(matrix, "driver", item),
            }  # fmt: skip


def _drives(matrix: Matrix, item: DriverVersion, branch: DriverBranch, flavour: str, kinds: list[GpuKind]) -> bool:
    value = DriverValue(
        item.version, nv(item.version), branch, cast("Any", flavour), item.confidence, branch.has_ended(matrix.date)
    )
    return all(
        kind.module != "unknown"
        and rules.window_fits(value, kind)
        and rules.module_fits(value, kind)
        and (kind.min_driver is None or value.number >= nv(kind.min_driver))
        for kind in kinds
    )


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _gpus(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    named = [gpus_named(matrix, name) for name in gpus_of((*filter(None, [wanted]), *request.gpus))[0]]
    products = [gpu for found in named for gpu in found] if named else list(matrix.gpus.gpus)
    for gpu in dict.fromkeys(products):
        kind = kind_of(matrix, [gpu], gpu.name)
        if request.arch is not None and gpu.only_cpu not in (None, request.arch):
            continue
        if request.driver is not None and not _driven_by(request.driver, kind):
            continue
        yield _gpu_row(gpu, kind, matrix)


def _driven_by(driver: str, kind: GpuKind) -> bool:
    branch = nv(driver).major
    if kind.module == "unknown" or (kind.min_driver is not None and nv(driver) < nv(kind.min_driver)):
        return False
    return (kind.min_branch or 0) <= branch and (kind.last_branch is None or branch <= kind.last_branch)


def _gpu_row(gpu: Gpu, kind: GpuKind, matrix: Matrix) -> Row:
    figures = next((item for item in matrix.gpu_figures.gpus if gpu.name in item.names), None)
    window = next((item for item in matrix.driver.architectures if gpu.cc in item.capabilities), None)
    return {
        "gpu": gpu.name,
        "architecture": gpu.arch,
        "cc": gpu.cc,
        "kind": gpu.kind,
        "pci_ids": list(gpu.ids),
        "only_cpu": gpu.only_cpu,
        "driver_first": gpu.min_driver or (f"R{kind.min_branch}" if kind.min_branch else None),
        "driver_last": f"R{kind.last_branch}" if kind.last_branch else None,
        "cuda_first": _first_cuda(matrix, window, gpu.cc) if window else None,
        "cuda_last": (window.last_cuda or None) if window else None,
        "open_module": kind.module,
        "mig_driver": gpu.mig_min_driver,
        "mig_profiles": [
            item.name for row in matrix.mig.products if set(row.ids) & set(gpu.ids) for item in row.profiles
        ],
        **_figures_row(figures),
        **_provenance(matrix, "gpus", gpu),
        "figures_sources": [matrix.gpu_figures.sources[key].url for key in figures.sources] if figures else [],
    }


def _first_cuda(matrix: Matrix, window: Architecture, cc: str) -> str | None:
    """Return the first CUDA for an architecture, or the later first one whose compiler knows this capability."""
    every = sorted((row.minor for row in matrix.cuda.toolchains), key=nv)
    first = next((minor for minor in every if rules.compiles_for(matrix, minor, cc)), every[0])
    return (first if window.first_cuda and first != every[0] else window.first_cuda) or None


def _figures_row(figures: GpuFigures | None) -> Row:
    names = ("memory_gb", "memory_type", "bandwidth_gbs", "power_w", "nvlink_gbs", "fp16", "bf16", "fp8")
    return {name: getattr(figures, name) if figures is not None else None for name in names}


# --- distributions ----------------------------------------------------------------------------------------------------


def _systems(wanted: str, request: Request, matrix: Matrix) -> list[OsRelease]:
    systems = systems_named(matrix, wanted) if wanted else list(matrix.os.systems)
    own = find_system(matrix, request.os) if request.os is not None else None
    return [it for it in systems if own in (None, it) and (request.arch is None or request.arch in it.arches)]


def _os(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    for system in _systems(wanted, request, matrix):
        yield {
            "os": system.id, "name": system.name, "family": system.family, "arches": list(system.arches),
            "python": system.python, "pythons": [item.version for item in system.pythons], "glibc": system.glibc,
            "repository": system.repo, "cuda_min": system.cuda_min, "cuda_max": system.cuda_max,
            "last_branch": system.last_branch, **_provenance(matrix, "os", system),
        }  # fmt: skip


def _pythons(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    """Yield one row per Python: the distributions that have it, and each framework's newest release with wheels."""
    arch = request.arch or "x86_64"
    systems = _systems("", request, matrix)
    base = {system.id: system.python for system in systems}
    packaged = {system.id: {item.version for item in system.pythons} for system in systems}
    wheels = {name: _wheels(matrix, name, arch) for name in ("torch", "tensorflow", "jax", "cupy")}
    known = {*base.values(), *(text for found in packaged.values() for text in found)} - {"unknown"}
    if request.os is None:
        known |= {text for found in wheels.values() for text in found}
    hits = matches(Requirement(component="python", specifier=wanted), known)
    for version in sorted(hits, key=nv, reverse=True):
        yield {
            "python": version,
            "base_of": [name for name, own in base.items() if own == version],
            "packaged_by": [name for name, found in packaged.items() if version in found],
            **{name: found.get(version) for name, found in wheels.items()},
            "confidence": "inferred",
            "sources": sorted({cite(matrix, "os", it) for it in systems if version in {it.python, *packaged[it.id]}}),
            "note": "",
        }


def _wheels(matrix: Matrix, name: str, arch: str) -> dict[str, str]:
    """Return, for each Python, a framework's newest release with CUDA wheels for it on this CPU."""
    newest: dict[str, str] = {}
    with_cuda = {build.version for build in matrix.torch.builds if build.code_on(arch) is not None}
    for release in getattr(matrix, name).releases:
        pythons = release.pythons.get(arch, ()) if isinstance(release.pythons, dict) else release.pythons
        if getattr(release, "excluded", "") or (name == "torch" and release.version not in with_cuda):
            continue
        for python in pythons:
            if not python.endswith("t") and parsed(release.version) >= parsed(newest.get(python, "0")):
                newest[python] = release.version
    return newest


# --- vGPU -------------------------------------------------------------------------------------------------------------


def _vgpu(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    branches = {item.vgpu: item.branch for item in matrix.vgpu.branches}
    cuda = {item.branch: item.cuda for item in matrix.driver.branches}
    hosts = {line: hosts_that_take(line, matrix) for line in branches}
    clouds: dict[str, dict[str, str]] = {}
    for cloud in matrix.vgpu.clouds:
        for file in files_of(cloud, matrix):
            clouds.setdefault(file.vgpu, {})[cloud.cloud] = file.url

    def fits(item: VgpuRelease) -> bool:
        drivers = [version for version in (item.guest, item.host) if version]
        named = not wanted or any(f"{text}.".startswith(f"{wanted}.") for text in (item.vgpu, *drivers))
        return named and (
            request.driver is None or any(f"{text}.".startswith(f"{request.driver}.") for text in drivers)
        )

    wanted = wanted.lstrip("=rR").removesuffix(".*")
    for item in sorted(filter(fits, matrix.vgpu.releases), key=lambda item: nv(item.vgpu), reverse=True):
        line = item.vgpu.partition(".")[0]
        branch = branches.get(line, nv(item.guest).major)
        yield {
            "vgpu": item.vgpu, "branch": f"R{branch}", "guest": item.guest, "host": item.host, "date": item.date,
            "cuda": cuda.get(branch), "hosts": list(hosts.get(line, ())), "clouds": clouds.get(item.vgpu, {}),
            **_provenance(matrix, "vgpu", item),
        }  # fmt: skip


def _cves(wanted: str, request: Request, matrix: Matrix) -> Iterable[Row]:
    return rows(matrix, wanted or (f"driver {request.driver}" if request.driver else ""))


def _instances(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    """Yield one row per machine type; `wanted` is a cloud or the beginning of a name."""
    start = wanted.lower().removesuffix("*").removeprefix("standard_")
    start = {"gcp": "google", "oci": "oracle"}.get(start, start)
    gpus = {name for asked in request.gpus for name in find_gpu(matrix, asked).names}
    for item in matrix.instances.instances:
        if item.cloud != start and not item.name.lower().removeprefix("standard_").startswith(start):
            continue
        if not gpus or gpus & set(find_gpu(matrix, item.gpu).names):
            fields = {name: getattr(item, name) for name in ("gpu", "count", "memory_gb", "fabric", "driver")}
            yield {"instance": item.name, "cloud": item.cloud, **fields, **_provenance(matrix, "instances", item)}


def _variants(wanted: str, request: Request, matrix: Matrix) -> Iterator[Row]:
    """Yield one row per feature of wheel variants: the values that fit the GPUs and the driver."""
    if machine := machine_of(matrix, request.gpus, request.driver):
        told = _provenance(matrix, "driver", machine.branch)
        yield from (row | told for row in feature_rows(machine) if wanted in row["property"])


_ROWS: dict[str, Callable[[str, Request, Matrix], Iterable[Row]]] = {
    "driver": _drivers, "gpu": _gpus, "os": _os, "python": _pythons, "vgpu": _vgpu, "cve": _cves,
    "mig": lambda *asked: (row for row in _gpus(*asked) if row["mig_profiles"]),
    "instances": _instances, "variants": _variants,
}  # fmt: skip
