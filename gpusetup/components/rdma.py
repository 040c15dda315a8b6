"""RDMA, GDRCopy and GPUDirect Storage: the way to GPU memory, the packages, the actions of a plan."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from msgspec import UNSET

from gpusetup.components import judge
from gpusetup.components.base import Brought, Component, Context, Group, Wanted, action, glob, named
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import choice, yes
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import Manager, Package
from gpusetup.model.plan import Action
from gpusetup.model.settings import DirectMemory, GpuDirect, RdmaStack, Settings, StorageMode
from gpusetup.model.stack import Reason, Stack
from gpusetup.model.tables import Part, RdmaFile, Reach
from gpusetup.versions import nv


class Driver(NamedTuple):
    """The driver that a host has or will have."""

    version: str
    module: str


class MemoryWay(NamedTuple):
    """How adapters reach GPU memory (empty: only through host memory), and why."""

    name: Literal["", "dma-buf", "nvidia-peermem"]
    why: str


class StorageWay(NamedTuple):
    """How files get into GPU memory, and why."""

    name: Literal["p2pdma", "nvidia-fs"]
    why: str


def driver_of(facts: HostFacts, stack: Stack) -> Driver | None:
    """Return the driver of the stack, else the installed one."""
    if stack.driver is not None:
        return Driver(stack.driver.version, stack.driver.module)
    if facts.driver is None or not facts.driver.version:
        return None
    return Driver(facts.driver.version, facts.driver.flavour or "")


def short_of(reach: Reach, driver: Driver | None, kernel: str, arch: str, gpus: Iterable[str | None] = ()) -> str:
    """Return what a host lacks for a way to GPU memory; "" if nothing."""
    release = re.match(r"\d+(\.\d+)*", kernel)
    strangers = sorted({name or "an unknown GPU" for name in gpus if not _is_among(name, reach.gpus)})
    if driver is None:
        return "there is no driver"
    if driver.module != "open":
        return f"the kernel modules of driver {driver.version} are the proprietary ones"
    if nv(driver.version) < nv(reach.driver):
        return f"driver {driver.version} is older than {reach.driver}"
    if release is None or nv(release[0]) < nv(reach.kernel):
        return f"kernel {kernel or 'unknown'} is older than {reach.kernel}"
    if reach.arches and arch not in reach.arches:
        return f"it is for {', '.join(reach.arches)}, and this is {arch}"
    if strangers:
        return f"NVIDIA names {', '.join(reach.gpus)}, and not {', '.join(strangers)}"
    return ""


def _lacking(reach: Reach, facts: HostFacts, driver: Driver | None) -> str:
    return short_of(reach, driver, facts.kernel.next, facts.arch, (gpu.name for gpu in facts.gpus))


def having_none(facts: HostFacts, table: RdmaFile) -> list[str]:
    """Return the products of this host that have no GPUDirect at all."""
    return sorted({gpu.name for gpu in facts.gpus if gpu.name and _is_among(gpu.name, table.without.gpus)})


def _is_among(name: str | None, products: tuple[str, ...]) -> bool:
    return not products or (bool(name) and re.split(r"[\s-]", name or "")[0] in products)


def memory_way(
    facts: HostFacts, driver: Driver | None, asked: DirectMemory, stack: RdmaStack, table: RdmaFile
) -> MemoryWay:
    """Return how adapters reach GPU memory: DMA-BUF if possible, since it needs no extra module.

    Raise if a way that was asked for by name is impossible; with `auto` the result may be no way.
    """
    without = having_none(facts, table)
    lacking = f"{', '.join(without)} has none of it" if without else _lacking(table.dma_buf, facts, driver)
    peer_memory = facts.rdma.peer_memory if facts.rdma is not None else None
    # DOCA-OFED's RDMA core supports nvidia_peermem; a distribution's kernel may be patched for it.
    closed = "" if stack == "doca" or peer_memory else "the RDMA core of this kernel takes no nvidia_peermem"
    if without:
        closed = lacking
    if asked == "dma-buf" and lacking:
        raise _impossible("dma-buf", lacking, "" if closed else "nvidia-peermem")
    if asked == "nvidia-peermem" and (closed or driver is None):
        raise _impossible("nvidia-peermem", closed or lacking, "" if lacking else "dma-buf")
    if asked == "nvidia-peermem":
        return MemoryWay("nvidia-peermem", "set by gpusetup_gpudirect")
    if not lacking and driver is not None:
        why = (
            f"DMA-BUF: open kernel modules {driver.version} and kernel {facts.kernel.next} have it; no module is needed"
        )
        return MemoryWay("dma-buf", why)
    if not closed and driver is not None:
        return MemoryWay("nvidia-peermem", f"nvidia_peermem: no DMA-BUF, as {lacking}")
    return MemoryWay("", f"no DMA-BUF, as {lacking}; no nvidia_peermem, as {closed or lacking}")


def _impossible(asked: str, why: str, instead: str) -> PreflightError:
    more = f"use gpusetup_gpudirect={instead}" if instead else "the guide has what each way needs: docs/guides/rdma.md"
    return PreflightError("GS-382", f"gpusetup_gpudirect={asked} is not possible here: {why}", hint=more)


def storage_way(facts: HostFacts, driver: Driver | None, asked: str, offers_nvfs: bool, table: RdmaFile) -> StorageWay:
    """Return how files get into GPU memory; raise if no way is possible: cuFile would silently copy."""
    lacking = _lacking(table.p2pdma, facts, driver)
    if not lacking and facts.storage is not None and facts.storage.p2pdma is False:
        lacking = f"kernel {facts.kernel.running} is built without PCI peer-to-peer DMA"
    unfit = "" if driver is not None and driver.module == "open" else "nvidia-fs needs the open kernel modules"
    closed = unfit or ("" if offers_nvfs else "no repository here has nvidia-fs-dkms")
    if asked in {"auto", "p2pdma"} and not lacking:
        return StorageWay("p2pdma", f"P2PDMA: kernel {facts.kernel.next}, driver and GPUs have it; no module is needed")
    if asked == "p2pdma":
        raise _no_storage(f"P2PDMA is not possible here: {lacking}", "" if closed else "gpusetup_gds=nvidia-fs")
    if closed:
        both = f"{closed}; no P2PDMA, as {lacking}" if asked == "auto" else closed
        raise _no_storage(both, "" if lacking else "gpusetup_gds=p2pdma")
    why = f"no P2PDMA, as {lacking}" if asked == "auto" else "set by gpusetup_gds"
    return StorageWay("nvidia-fs", f"nvidia-fs: {why}")


def _no_storage(why: str, instead: str) -> PreflightError:
    return PreflightError(
        "GS-383", f"gpusetup_gds: {why}",
        note="without either, cuFile silently copies through the host's memory",
        hint=f"use {instead}" if instead else "unset gpusetup_gds here, or see docs/guides/rdma.md for what it needs",
    )  # fmt: skip


def modules_of(*, ipoib: bool, memory: str, gdrcopy: bool, storage: str) -> tuple[str, ...]:
    """Return the modules to load at every boot."""
    named = {
        "ib_ipoib": ipoib,
        "nvidia_peermem": memory == "nvidia-peermem",
        "gdrdrv": gdrcopy,
        "nvidia_fs": storage == "nvidia-fs",
    }
    return tuple(name for name, wanted in named.items() if wanted)


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the actions other than packages: files for limits, modules and options, and a reboot for options."""
    facts, setup = host.facts, wanted.parts.get("rdma")
    record, found = record_of(facts), setup or GpuDirect()
    p2pdma = found.storage == "p2pdma"
    texts = judge.gpudirect.files(found.stack, found.modules, p2pdma)
    paths = [path for path, text in texts.items() if not _is_as(record.files.get(path), text)]
    if setup is None:
        if paths:
            why = "gpusetup_rdma, gpusetup_gds and gpusetup_gdrcopy are no longer set"
            reboot = judge.gpudirect.OPTIONS in paths
            yield action("file", "rdma", "RDMA and GPUDirect as they were before", why, reboot=reboot)
        return
    if judge.gpudirect.LOAD in paths:
        what = f"{', '.join(found.modules)} at every boot" if found.modules else "no modules at boot"
        yield action("module", "rdma", what, "the requested settings need these modules")
    if judge.gpudirect.LIMITS in paths or judge.gpudirect.MANAGER in paths:
        why = "RDMA locks its buffers in memory, and the usual limit is 8 MiB"
        yield action("file", "memlock", "any amount of memory may be locked", why)
    allowed = facts.storage is not None and facts.storage.use_pci_p2pdma
    if p2pdma and not allowed:
        yield action("file", "cufile", "cuFile may use PCI peer-to-peer DMA", "by default it may not")
    waiting = judge.gpudirect.of_storage(host.probed["storage"]) if p2pdma else []
    if judge.gpudirect.OPTIONS in paths or waiting:
        why = "; ".join(waiting) or "drives reach GPU memory by it"
        what = "options of nvme_core and nvidia for PCI peer-to-peer DMA"
        yield action("module", "p2pdma", what, why, reboot=True)


def _is_as(there: object, text: str | None) -> bool:
    if text is None:
        return there is None
    return getattr(there, "sha256", None) == hashlib.sha256(text.encode()).hexdigest()


_OTHERS = ("doca-ofed", "mlnx-ofed", "mlnx-tools")
"""Packages of NVIDIA's RDMA stack, which excludes a distribution's own."""
_WHENCE = {
    "inbox": "it is the distribution's own: its main repository is switched off here, or a mirror lacks it",
    "doca": "NVIDIA publishes DOCA-OFED under terms that you must agree to, and no fingerprint of its key: name its "
    "repository, or your mirror of it, in gpusetup_extra_sources",
    "gdrcopy": "NVIDIA's CUDA repositories for rpm have it; for apt build its packages from "
    "github.com/NVIDIA/gdrcopy, and name the repository that you put them into in gpusetup_extra_sources",
    "nvidia-fs": "NVIDIA's CUDA repository has it (gpusetup_source=nvidia)",
}


def _asks(settings: Settings) -> bool:
    """Return whether any of these settings is on."""
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


def _patterns(context: Context, matrix: Matrix) -> tuple[str, ...]:
    """Return the package names to search for."""
    if not _asks(context.settings):
        return ()
    parts = set(_parts(context.settings, context.settings.gds))
    return tuple(
        dict.fromkeys(glob(name) for row in matrix.rdma.packages if row.part in parts for name in row.packages)
    )


def _wants(context: Context, manager: Manager, stack: Stack, matrix: Matrix) -> Brought:
    """Return the setup with its packages, reasons and warnings; raise if the host cannot have it."""
    settings, facts, table = context.settings, context.facts, matrix.rdma
    if not _asks(settings):
        return Brought()
    _refuse_halves(context)
    if settings.gdrcopy and (without := having_none(facts, table)):
        raise PreflightError(
            "GS-382", f"gpusetup_gdrcopy is not possible here: {', '.join(without)} has no GPUDirect",
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
            notes.append("gpusetup_gds: nvidia-fs reads local NVMe drives only with the NVMe driver of DOCA-OFED")
        if storage == "p2pdma" and "NVreg_RegistryDwords" in settings.driver_options:
            raise PreflightError(
                "GS-383", "gpusetup_gds: P2PDMA sets NVreg_RegistryDwords, and gpusetup_driver_options does too",
                hint="remove it from gpusetup_driver_options, or use gpusetup_gds=nvidia-fs",
            )  # fmt: skip
    modules = modules_of(ipoib=settings.ipoib, memory=memory, gdrcopy=settings.gdrcopy, storage=storage)
    setup = GpuDirect(stack=settings.rdma, memory=memory, storage=storage, modules=modules)
    packages = tuple(_packages(context, manager, stack, matrix, storage))
    return Brought(setup, packages, tuple(reasons), tuple(notes))


def _packages(context: Context, manager: Manager, stack: Stack, matrix: Matrix, storage: str) -> Iterator[Package]:
    for part in _parts(context.settings, storage):
        row = next((row for row in matrix.rdma.packages if row.part == part and manager in row.managers), None)
        names = row.packages if row is not None else ()
        if part == "gds-tools":
            # Only beside a packaged toolkit: wheels contain cuFile.
            minor = "-".join(stack.cuda.version.split(".")[:2]) if stack.cuda is not None else ""
            filled = (named(name, minor=minor) for name in names if minor)
            yield from (Package(name=name) for name in filled if context.offers.known and _has(context, name))
            continue
        lacking = [name for name in names if not _has(context, name)]
        if lacking and context.offers.known:
            own = {"gdrcopy": "gpusetup_gdrcopy", "nvidia-fs": "gpusetup_gds=nvidia-fs"}
            asked = own.get(part) or f"gpusetup_rdma={part}"
            raise PreflightError(
                "GS-381", f"{asked} needs {', '.join(lacking)}, and no repository of this host has it",
                hint=_WHENCE[part],
            )  # fmt: skip
        yield from (Package(name=name) for name in names)


def _has(context: Context, name: str) -> bool:
    return name in context.facts.packages.installed or context.offers.has(name)


def _refuse_halves(context: Context) -> None:
    """Raise for two RDMA stacks, which overwrite each other, and for settings that need a stack and have none."""
    settings, there = context.settings, context.facts.packages.installed
    found = next((name for name in there if name.startswith(_OTHERS)), None)
    if settings.rdma == "inbox" and found is not None:
        raise PreflightError(
            "GS-384", f"{found} {there[found]} is installed: NVIDIA's RDMA stack, which replaces the distribution's",
            hint="use gpusetup_rdma=doca, or remove it first (ofed_uninstall.sh, see NVIDIA's guide)",
        )  # fmt: skip
    idle = "ipoib needs an RDMA stack" if settings.ipoib else "gpudirect is about RDMA adapters"
    if settings.rdma == "none" and (settings.ipoib or settings.gpudirect != "auto"):
        raise PreflightError(
            "GS-384", f"gpusetup_{idle} needs RDMA, and gpusetup_rdma is none",
            hint="add gpusetup_rdma=inbox (the distribution's own) or gpusetup_rdma=doca",
        )  # fmt: skip


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    """Return the role's variables; "none" removes what an earlier apply set up."""
    setup: GpuDirect | None = wanted.parts.get("rdma")
    if setup is None:
        ours = judge.gpudirect.files("inbox", ["any"], p2pdma=True)
        return {"gpu_rdma_stack": "none"} if any(path in record_of(facts).files for path in ours) else {}
    return {
        "gpu_rdma_stack": setup.stack,
        "gpu_rdma_modules": setup.modules,
        "gpu_rdma_p2pdma": setup.storage == "p2pdma",
    }


def _storage_mode(value: Any, label: str) -> str:
    """Read how files get into GPU memory; true means auto, false means none."""
    word = {True: "auto", False: "none"}.get(value, value) if isinstance(value, bool) else value
    return str(choice(*get_args(StorageMode))(word, label))


RDMA = Component(
    name="rdma",
    settings={
        "rdma": choice(*get_args(RdmaStack)),
        "gpudirect": choice(*get_args(DirectMemory)),
        "ipoib": yes,
        "gdrcopy": yes,
        "gds": _storage_mode,
    },
    packages={
        "rdma": Group(
            "RDMA and GPUDirect, set by gpusetup_rdma, gpusetup_gdrcopy and gpusetup_gds",
            "gpu_rdma_packages",
            leaves=("*",),
        )
    },
    asks=_asks,
    patterns=_patterns,
    wants=_wants,
    actions=_actions,
    variables=_variables,
    kept="gpudirect",
    none=UNSET,
)
