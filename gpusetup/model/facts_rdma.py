"""Facts of adapters with RDMA, and of what lets storage reach a GPU's memory. Import from `gpusetup.model.facts`."""

from __future__ import annotations

from msgspec import Struct

from gpusetup.model.facts_machine import PciLink
from gpusetup.model.facts_settings import Way


class Port(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of an adapter; rates in Gb/s."""

    number: int
    layer: str | None = None
    """InfiniBand or Ethernet."""
    state: str | None = None
    """ACTIVE; INIT before a subnet manager has set it up; DOWN."""
    physical: str | None = None
    rate: float | None = None
    fastest: float | None = None
    """The highest rate that the port says it can have; None where nothing tells."""
    subnet_manager: bool | None = None
    interface: str | None = None


class Hca(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An adapter with RDMA (`mlx5_0`): one function of a card."""

    name: str
    address: str | None = None
    pci_id: str | None = None
    board: str | None = None
    firmware: str | None = None
    numa_node: int | None = None
    link: PciLink | None = None
    way: Way | None = None
    ports: tuple[Port, ...] = ()


class Memlock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much memory programs may lock, which RDMA does with every buffer."""

    kib: int | None = None
    """Of the session that looked."""
    unlimited: bool = False
    lifted: bool = False
    """The files of limits lift it for everyone who logs in."""


class Rdma(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The adapters, and what they need of the system."""

    hcas: tuple[Hca, ...] = ()
    peer_memory: bool | None = None
    """Whether the RDMA stack takes nvidia_peermem; None where the kernel's symbols are not to be read."""
    memlock: Memlock = Memlock()


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What cuFile can use to read files straight into GPU memory."""

    nvidia_fs: str | None = None
    """The version of the module that is loaded."""
    p2pdma: bool | None = None
    """Whether the running kernel has PCI peer-to-peer DMA."""
    multipath: bool | None = None
    """NVMe multipath of the loaded module."""
    registry: str = ""
    """RegistryDwords of the loaded driver."""
    use_pci_p2pdma: bool | None = None
    """As cufile.json has it."""
    drives: int = 0
