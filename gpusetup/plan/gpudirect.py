"""How adapters and drives reach GPU memory: by what the driver, the kernel and the GPUs can, with the reasons."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpusetup.errors import PreflightError
from gpusetup.model.plan import Action
from gpusetup.model.rdma import GpuDirect
from gpusetup.plan import judge
from gpusetup.plan.recorded import record_of
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.model.facts import HostFacts
    from gpusetup.model.rdma import DirectMemory, RdmaFile, RdmaStack, Reach
    from gpusetup.model.stack import Stack

__all__ = [
    "Driver",
    "MemoryWay",
    "StorageWay",
    "driver_of",
    "gpudirect_actions",
    "having_none",
    "memory_way",
    "modules_of",
    "short_of",
    "storage_way",
]


class Driver(NamedTuple):
    """The driver that a host has or gets."""

    version: str
    module: str


class MemoryWay(NamedTuple):
    """How adapters reach GPU memory, empty when not at all, and why."""

    name: Literal["", "dma-buf", "nvidia-peermem"]
    why: str


class StorageWay(NamedTuple):
    """How files come into GPU memory, and why."""

    name: Literal["p2pdma", "nvidia-fs"]
    why: str


def driver_of(facts: HostFacts, stack: Stack) -> Driver | None:
    """Return the driver of the stack, else the one that is there."""
    if stack.driver is not None:
        return Driver(stack.driver.version, stack.driver.module)
    if facts.driver is None or not facts.driver.version:
        return None
    return Driver(facts.driver.version, facts.driver.flavour or "")


def short_of(reach: Reach, driver: Driver | None, kernel: str, arch: str, gpus: Iterable[str | None] = ()) -> str:
    """Say what is lacking for a way to GPU memory; empty when nothing is."""
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
    """Return the products here that have nothing of GPUDirect."""
    return sorted({gpu.name for gpu in facts.gpus if gpu.name and _is_among(gpu.name, table.without.gpus)})


def _is_among(name: str | None, products: tuple[str, ...]) -> bool:
    return not products or (bool(name) and re.split(r"[\s-]", name or "")[0] in products)


def memory_way(
    facts: HostFacts, driver: Driver | None, asked: DirectMemory, stack: RdmaStack, table: RdmaFile
) -> MemoryWay:
    """Choose how adapters reach GPU memory; DMA-BUF comes first, as it needs no module of its own.

    What was asked for by name and cannot be is refused; otherwise the way may be none.
    """
    without = having_none(facts, table)
    lacking = f"{', '.join(without)} has none of it" if without else _lacking(table.dma_buf, facts, driver)
    peer_memory = facts.rdma.peer_memory if facts.rdma is not None else None
    # DOCA-OFED brings its own RDMA core, which takes nvidia_peermem; a distribution's may be patched for it.
    closed = "" if stack == "doca" or peer_memory else "the RDMA core of this kernel takes no nvidia_peermem"
    if without:
        closed = lacking
    if asked == "dma-buf" and lacking:
        raise _impossible("dma-buf", lacking, "" if closed else "nvidia-peermem")
    if asked == "nvidia-peermem" and (closed or driver is None):
        raise _impossible("nvidia-peermem", closed or lacking, "" if lacking else "dma-buf")
    if asked == "nvidia-peermem":
        return MemoryWay("nvidia-peermem", "gpusetup_gpudirect asks for it")
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
    return PreflightError("GS-382", f"gpusetup_gpudirect={asked} cannot be here: {why}", hint=more)


def storage_way(facts: HostFacts, driver: Driver | None, asked: str, offers_nvfs: bool, table: RdmaFile) -> StorageWay:
    """Choose how files come into GPU memory; what cannot be is refused, as cuFile would copy without a word."""
    lacking = _lacking(table.p2pdma, facts, driver)
    if not lacking and facts.storage is not None and facts.storage.p2pdma is False:
        lacking = f"kernel {facts.kernel.running} is built without PCI peer-to-peer DMA"
    unfit = "" if driver is not None and driver.module == "open" else "nvidia-fs needs the open kernel modules"
    closed = unfit or ("" if offers_nvfs else "no repository here has nvidia-fs-dkms")
    if asked in {"auto", "p2pdma"} and not lacking:
        return StorageWay("p2pdma", f"P2PDMA: kernel {facts.kernel.next}, driver and GPUs have it; no module is needed")
    if asked == "p2pdma":
        raise _no_storage(f"P2PDMA cannot be here: {lacking}", "" if closed else "gpusetup_gds=nvidia-fs")
    if closed:
        both = f"{closed}; no P2PDMA, as {lacking}" if asked == "auto" else closed
        raise _no_storage(both, "" if lacking else "gpusetup_gds=p2pdma")
    why = f"no P2PDMA, as {lacking}" if asked == "auto" else "gpusetup_gds asks for it"
    return StorageWay("nvidia-fs", f"nvidia-fs: {why}")


def _no_storage(why: str, instead: str) -> PreflightError:
    return PreflightError(
        "GS-383", f"gpusetup_gds: {why}",
        note="without one of the two cuFile copies through the host's memory, and says so to nobody",
        hint=f"use {instead}" if instead else "unset gpusetup_gds here, or see docs/guides/rdma.md for what it needs",
    )  # fmt: skip


def modules_of(*, ipoib: bool, memory: str, gdrcopy: bool, storage: str) -> tuple[str, ...]:
    """Return the modules that are loaded at every boot."""
    named = {
        "ib_ipoib": ipoib,
        "nvidia_peermem": memory == "nvidia-peermem",
        "gdrdrv": gdrcopy,
        "nvidia_fs": storage == "nvidia-fs",
    }
    return tuple(name for name, wanted in named.items() if wanted)


def gpudirect_actions(facts: HostFacts, wanted: GpuDirect | None) -> Iterator[Action]:
    """Yield what changes beside packages: files of limits and modules, and what the loaded modules lack."""
    record, found = record_of(facts), wanted or GpuDirect()
    p2pdma = found.storage == "p2pdma"
    texts = judge.gpudirect.files(found.stack, found.modules, p2pdma)
    paths = [path for path, text in texts.items() if not _is_as(record.files.get(path), text)]
    if wanted is None:
        if paths:
            why = "gpusetup_rdma, gpusetup_gds and gpusetup_gdrcopy no longer ask for it"
            reboot = judge.gpudirect.OPTIONS in paths
            yield Action(
                id="file-rdma", kind="file", what="RDMA and GPUDirect as they were before", why=why, reboot=reboot
            )
        return
    if judge.gpudirect.LOAD in paths:
        what = f"{', '.join(found.modules)} at every boot" if found.modules else "no module at boot any more"
        yield Action(id="module-rdma", kind="module", what=what, why="what was asked for needs these modules")
    if judge.gpudirect.LIMITS in paths or judge.gpudirect.MANAGER in paths:
        why = "RDMA locks its buffers in memory, and the usual limit is 8 MiB"
        yield Action(id="file-memlock", kind="file", what="any amount of memory may be locked", why=why)
    allowed = facts.storage is not None and facts.storage.use_pci_p2pdma
    if p2pdma and not allowed:
        yield Action(
            id="file-cufile", kind="file", what="cuFile may use PCI peer-to-peer DMA", why="it does not by itself"
        )
    waiting = judge.gpudirect.of_storage(judge.probed(facts)["storage"]) if p2pdma else []
    if judge.gpudirect.OPTIONS in paths or waiting:
        why = "; ".join(waiting) or "drives reach GPU memory by it"
        what = "options of nvme_core and nvidia for PCI peer-to-peer DMA"
        yield Action(id="module-p2pdma", kind="module", what=what, why=why, reboot=True)


def _is_as(there: object, text: str | None) -> bool:
    if text is None:
        return there is None
    return getattr(there, "sha256", None) == hashlib.sha256(text.encode()).hexdigest()
