"""Names GPUs by their PCI ids: product, architecture and compute capability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.facts_machine import Gpu

    Lookup: TypeAlias = "Callable[[str, str], Product | None]"
    """Gets a PCI id and a subsystem id."""


class Product(Struct, frozen=True, kw_only=True):
    """The matrix's data of a GPU; a field is None if products with the same id differ in it."""

    name: str
    arch: str | None
    compute_capability: str | None
    vgpu: bool = False
    """Whether only vGPUs in guests have this subsystem id."""


def name_gpus(host: HostFacts, lookup: Lookup | None) -> HostFacts:
    """Return the host with named GPUs: from the lookup, else as nvidia-smi reports them."""
    named = tuple(_named(gpu, lookup(gpu.pci_id, gpu.subsystem) if lookup else None) for gpu in host.gpus)
    return msgspec.structs.replace(host, gpus=named)


def _named(gpu: Gpu, product: Product | None) -> Gpu:
    if product is None:
        if gpu.name is not None:
            return gpu
        return msgspec.structs.replace(gpu, name=gpu.reported_name, compute_capability=gpu.reported_capability)
    return msgspec.structs.replace(
        gpu,
        name=product.name,
        arch=product.arch,
        compute_capability=product.compute_capability or gpu.reported_capability,
        vgpu=True if gpu.vgpu is None and product.vgpu else gpu.vgpu,
    )


def matrix_lookup(matrix: Matrix) -> Lookup:
    """Return a lookup in a matrix."""
    from gpusetup.matrix.gpus import gpu_by_id

    def lookup(pci_id: str, subsystem: str) -> Product | None:
        found = gpu_by_id(matrix, pci_id, subsystem)
        if not found:
            return None
        arches, capabilities = {gpu.arch for gpu in found}, {gpu.cc for gpu in found}
        return Product(
            name=" or ".join(gpu.name for gpu in found),
            arch=arches.pop() if len(arches) == 1 else None,
            compute_capability=capabilities.pop() if len(capabilities) == 1 else None,
            vgpu=subsystem in matrix.vgpu.guest_subsystems.get(pci_id, ()),
        )

    return lookup
