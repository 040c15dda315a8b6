"""RDMA, GDRCopy and GPUDirect Storage: the packages of what is asked for, and how GPU memory is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from gpusetup.errors import PreflightError
from gpusetup.model.package import Package
from gpusetup.model.rdma import GpuDirect
from gpusetup.model.stack import Reason
from gpusetup.plan.gpudirect import driver_of, having_none, memory_way, modules_of, storage_way
from gpusetup.plan.packages.names import glob, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.package import Manager
    from gpusetup.model.rdma import Part
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import Stack
    from gpusetup.plan.packages.base import Context

__all__ = ["Direct", "rdma_of", "rdma_patterns", "wants_rdma"]

_OTHERS = ("doca-ofed", "mlnx-ofed", "mlnx-tools")
"""Packages that tell of an RDMA stack of NVIDIA's, beside which a distribution's own cannot be."""
_WHENCE = {
    "inbox": "it is the distribution's own: its main repository is switched off here, or a mirror lacks it",
    "doca": "NVIDIA publishes DOCA-OFED under terms that you must agree to, and no fingerprint of its key: name its "
    "repository, or your mirror of it, in gpusetup_extra_sources",
    "gdrcopy": "NVIDIA's CUDA repositories for rpm have it; for apt build its packages from "
    "github.com/NVIDIA/gdrcopy, and name the repository that you put them into in gpusetup_extra_sources",
    "nvidia-fs": "NVIDIA's CUDA repository has it (gpusetup_source=nvidia)",
}


class Direct(NamedTuple):
    """What a host gets of it."""

    setup: GpuDirect | None = None
    packages: tuple[Package, ...] = ()
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


def wants_rdma(settings: Settings) -> bool:
    """Tell whether anything of it is asked for."""
    return settings.rdma != "none" or settings.gds != "none" or settings.gdrcopy or settings.ipoib


def _parts(settings: Settings, storage: str) -> Iterator[Part]:
    if settings.rdma != "none":
        yield settings.rdma
    if settings.gdrcopy:
        yield "gdrcopy"
    if storage in {"auto", "nvidia-fs"}:
        yield "nvidia-fs"
    if storage != "none":
        yield "gds-tools"


def rdma_patterns(context: Context, matrix: Matrix) -> tuple[str, ...]:
    """Return the names to look for."""
    if not wants_rdma(context.settings):
        return ()
    parts = set(_parts(context.settings, context.settings.gds))
    return tuple(
        dict.fromkeys(glob(name) for row in matrix.rdma.packages if row.part in parts for name in row.packages)
    )


def rdma_of(context: Context, manager: Manager, stack: Stack, matrix: Matrix) -> Direct:
    """Return what is set up here; what cannot be is refused before anything is touched."""
    settings, facts, table = context.settings, context.facts, matrix.rdma
    if not wants_rdma(settings):
        return Direct()
    _refuse_halves(context)
    if settings.gdrcopy and (without := having_none(facts, table)):
        raise PreflightError(
            "GS-382", f"gpusetup_gdrcopy cannot be here: {', '.join(without)} has no GPUDirect",
            hint="unset gpusetup_gdrcopy on this host",
        )  # fmt: skip
    driver = driver_of(facts, stack)
    reasons: list[Reason] = []
    notes: list[str] = []
    memory: Literal["", "dma-buf", "nvidia-peermem"] = ""
    storage: Literal["none", "p2pdma", "nvidia-fs"] = "none"
    if settings.rdma != "none":
        way = memory_way(facts, driver, settings.gpudirect, settings.rdma, table)
        memory = way.name
        if memory:
            reasons.append(
                Reason(component="driver", rule="dma-buf-before-peermem", text=f"GPUDirect RDMA by {way.why}")
            )
        else:
            notes.append(f"gpusetup_rdma: adapters copy through the host's memory: {way.why}")
        if facts.rdma is None:
            notes.append(
                "gpusetup_rdma: no adapter with RDMA is seen here; one whose module is missing shows after apply"
            )
    if settings.gds != "none":
        offered = not context.offers.known or _has(context, "nvidia-fs-dkms")
        path = storage_way(facts, driver, settings.gds, offered, table)
        storage = path.name
        reasons.append(Reason(component="driver", rule="gds-p2pdma", text=f"GPUDirect Storage by {path.why}"))
        if storage == "nvidia-fs" and settings.rdma != "doca":
            notes.append("gpusetup_gds: nvidia-fs reads local NVMe drives only beside the NVMe driver of DOCA-OFED")
        if storage == "p2pdma" and "NVreg_RegistryDwords" in settings.driver_options:
            raise PreflightError(
                "GS-383", "gpusetup_gds: P2PDMA sets NVreg_RegistryDwords, and gpusetup_driver_options does too",
                hint="take it out of gpusetup_driver_options, or use gpusetup_gds=nvidia-fs",
            )  # fmt: skip
    modules = modules_of(ipoib=settings.ipoib, memory=memory, gdrcopy=settings.gdrcopy, storage=storage)
    setup = GpuDirect(stack=settings.rdma, memory=memory, storage=storage, modules=modules)
    packages = tuple(_packages(context, manager, stack, matrix, storage))
    return Direct(setup, packages, tuple(reasons), tuple(notes))


def _packages(context: Context, manager: Manager, stack: Stack, matrix: Matrix, storage: str) -> Iterator[Package]:
    for part in _parts(context.settings, storage):
        row = next((row for row in matrix.rdma.packages if row.part == part and manager in row.managers), None)
        names = row.packages if row is not None else ()
        if part == "gds-tools":
            # They come with a toolkit of packages; wheels have cuFile of their own.
            minor = "-".join(stack.cuda.version.split(".")[:2]) if stack.cuda is not None else ""
            filled = (named(name, minor=minor) for name in names if minor)
            yield from (Package(name=name) for name in filled if context.offers.known and _has(context, name))
            continue
        lacking = [name for name in names if not _has(context, name)]
        if lacking and context.offers.known:
            raise PreflightError(
                "GS-381", f"{_variable(part)} needs {', '.join(lacking)}, and no repository here has it",
                hint=_WHENCE[part],
            )  # fmt: skip
        yield from (Package(name=name) for name in names)


def _variable(part: str) -> str:
    named = {"gdrcopy": "gpusetup_gdrcopy", "nvidia-fs": "gpusetup_gds=nvidia-fs"}
    return named.get(part) or f"gpusetup_rdma={part}"


def _has(context: Context, name: str) -> bool:
    return name in context.facts.packages.installed or context.offers.has(name)


def _refuse_halves(context: Context) -> None:
    """Two RDMA stacks overwrite each other; IP over InfiniBand without one has nothing to run over."""
    settings, there = context.settings, context.facts.packages.installed
    found = next((name for name in there if name.startswith(_OTHERS)), None)
    if settings.rdma == "inbox" and found is not None:
        raise PreflightError(
            "GS-384", f"{found} {there[found]} is installed: NVIDIA's RDMA stack, which replaces the distribution's",
            hint="use gpusetup_rdma=doca, or take it away first (ofed_uninstall.sh, see NVIDIA's guide)",
        )  # fmt: skip
    if settings.ipoib and settings.rdma == "none":
        raise PreflightError(
            "GS-384", "gpusetup_ipoib needs an RDMA stack, and gpusetup_rdma is none",
            hint="add gpusetup_rdma=inbox (the distribution's own) or gpusetup_rdma=doca",
        )  # fmt: skip
    if settings.gpudirect != "auto" and settings.rdma == "none":
        raise PreflightError(
            "GS-384", "gpusetup_gpudirect is about RDMA adapters, and gpusetup_rdma is none",
            hint="add gpusetup_rdma=inbox (the distribution's own) or gpusetup_rdma=doca",
        )  # fmt: skip
