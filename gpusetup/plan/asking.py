"""From a host's facts to the question for the resolver: its GPUs, its system, and the driver that works there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.matrix.gpus import gpu_by_id

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import Gpu, HostFacts
    from gpusetup.model.request import Request

__all__ = ["request_for", "working_driver"]


def request_for(host: HostFacts, wishes: Request, matrix: Matrix) -> Request:
    """Return the wishes as a request about this host; what the wishes say of the machine themselves stays."""
    known = {system.id for system in matrix.os.systems}
    driver = working_driver(host)
    return msgspec.structs.replace(
        wishes,
        gpus=wishes.gpus or tuple(dict.fromkeys(_name(gpu, matrix) for gpu in host.gpus)),
        gpu_count=wishes.gpu_count or len(host.gpus),
        os=wishes.os or (host.os.label if host.os.label in known else None),
        arch=wishes.arch or ("aarch64" if host.arch == "aarch64" else "x86_64"),
        installed_driver=wishes.installed_driver or driver,
        installed_module=wishes.installed_module or (host.driver.flavour if host.driver and driver else None),
        vgpu_guest=wishes.vgpu_guest or host.vgpu_guest,
    )


def working_driver(host: HostFacts) -> str | None:
    """Return the version of a driver that is loaded and answers; a broken or half-changed one does not count."""
    driver = host.driver
    if driver is None or driver.mismatch or driver.loaded is None:
        return None
    if host.smi is not None and not host.smi.ok:
        return None
    return driver.loaded.version or driver.version


def _name(gpu: Gpu, matrix: Matrix) -> str:
    """Return a name that the resolver understands: the product, else its capability."""
    if len({(item.arch, item.cc) for item in gpu_by_id(matrix, gpu.pci_id, gpu.subsystem)}) == 1:
        return gpu.pci_id
    if gpu.compute_capability:
        return "sm_" + gpu.compute_capability.replace(".", "")
    return gpu.pci_id
