"""Facts of the machine: system, kernels, PCI devices, adapters, firmware. Import from `gpusetup.model.facts`."""

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Literal

from msgspec import Struct, field

from gpusetup.model.settings import MigDevice, MigInstance
from gpusetup.model.tables import MigProfile


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BIOS, CPU and IOMMU of a machine."""

    bios_vendor: str | None = None
    bios_version: str | None = None
    bios_date: str | None = None
    board: str | None = None
    cpu: str | None = None
    microcode: str | None = None
    smt: bool | None = None
    governor: str | None = None
    numa_nodes: int | None = None
    iommu: bool | None = None


class Way(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The path between the processor and a device."""

    iommu: str | None = None
    """The type of its IOMMU group: identity (no translation), DMA, DMA-FQ."""
    bridges: int = 0
    above: tuple[str, ...] = ()
    """The bridges above it, nearest first; also empty in captures from before this was probed."""
    acs_redirect: tuple[str, ...] | None = None
    """Bridges above it whose ACS redirects traffic between GPUs to the root; None: only root can read it."""
    max_payload: int | None = None
    max_read_request: int | None = None
    bar_mib: int | None = None
    """The largest window into the GPU's memory."""


class NvLinks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVLinks of a GPU: how many are up and down, and the speed of the slowest that is up, GB/s each way."""

    up: int
    down: int
    slowest: float | None = None


class Port(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of an adapter; rates in Gb/s."""

    number: int
    layer: str | None = None
    """InfiniBand or Ethernet."""
    state: str | None = None
    """ACTIVE; INIT before a subnet manager has configured it; DOWN."""
    physical: str | None = None
    rate: float | None = None
    fastest: float | None = None
    """The port's highest supported rate; None: unknown."""
    subnet_manager: bool | None = None
    interface: str | None = None


class Hca(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An RDMA adapter (`mlx5_0`): one function of a card."""

    name: str
    address: str | None = None
    pci_id: str | None = None
    board: str | None = None
    firmware: str | None = None
    numa_node: int | None = None
    link: "PciLink | None" = None
    way: Way | None = None
    ports: tuple[Port, ...] = ()


class Memlock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much memory programs may lock; RDMA locks every buffer."""

    kib: int | None = None
    """The limit of the probe's session."""
    unlimited: bool = False
    lifted: bool = False
    """The limits files remove the limit for everyone who logs in."""


class Rdma(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The RDMA adapters, and what they need from the system."""

    hcas: tuple[Hca, ...] = ()
    peer_memory: bool | None = None
    """Whether the RDMA stack supports nvidia_peermem; None if the kernel's symbols cannot be read."""
    memlock: Memlock = Memlock()


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What cuFile can use to read files directly into GPU memory."""

    nvidia_fs: str | None = None
    """The version of the loaded module."""
    p2pdma: bool | None = None
    """Whether the running kernel has PCI peer-to-peer DMA."""
    multipath: bool | None = None
    """Whether the loaded NVMe module uses multipath."""
    registry: str = ""
    """RegistryDwords of the loaded driver."""
    use_pci_p2pdma: bool | None = None
    """The setting in cufile.json."""
    drives: int = 0


Flavour = Literal["open", "proprietary"]
Family = Literal["debian", "redhat", "suse", "unknown"]


class OperatingSystem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """/etc/os-release, with the package family."""

    id: str
    version_id: str
    like: tuple[str, ...] = ()
    codename: str | None = None
    name: str
    family: Family
    glibc: str | None = None

    @property
    def label(self) -> str:
        """The id for `--os`: ubuntu24.04, debian12, rocky9."""
        version = self.version_id if self.id == "ubuntu" else self.version_id.split(".")[0]
        return ("amzn" if self.id == "amzn" else self.id) + version


class ModuleFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NVIDIA kernel module on disk for one kernel."""

    path: str
    version: str | None
    flavour: Flavour | None
    signed: bool | None = None
    """None: the file could not be read."""
    signer: str | None = None
    key: str | None = None
    """The serial number of the signer's certificate, or the identifier of its key."""


class InstalledKernel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An installed kernel: its image, headers, initramfs and NVIDIA module."""

    release: str
    image: bool
    headers: bool
    initramfs: str | None
    nvidia: ModuleFile | None
    nouveau: bool


class Kernel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The running kernel, the one that boots next (modules are built for it), and all installed ones."""

    running: str
    next: str
    next_basis: str
    cmdline: tuple[str, ...] = ()
    """Arguments of the running kernel that matter to a GPU."""
    cmdline_next: tuple[str, ...] = ()
    compiler: str | None = None
    """The compiler that built the kernel that boots next, such as gcc-12."""
    installed: tuple[InstalledKernel, ...] = ()

    @property
    def target(self) -> InstalledKernel | None:
        """The installed kernel that boots next; None if its files are not on the host."""
        return next((kernel for kernel in self.installed if kernel.release == self.next), None)


class Boot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What identifies a boot and a machine."""

    id: str | None
    time: int | None
    machine: str | None = None
    """A digest of the machine id: equal for two names of one machine."""


class PciLink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The PCI Express link: its current and maximum state, and the slot's maximum."""

    width: int | None = None
    speed: str | None = None
    max_width: int | None = None
    max_speed: str | None = None
    slot_max_width: int | None = None
    slot_max_speed: str | None = None


class Fabric(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU's registration in the NVLink fabric; the status is valid once the state is Completed."""

    state: str | None
    status: str | None


class Slices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU's MIG instances, the devices that programs see, and the available profiles."""

    instances: tuple[MigInstance, ...] | None = ()
    """None: only root can read them."""
    devices: tuple[MigDevice, ...] = ()
    profiles: tuple[MigProfile, ...] = ()


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One NVIDIA GPU: facts from PCI, from the matrix, and from nvidia-smi when it works."""

    address: str
    pci_id: str
    subsystem: str
    kind: str = field(name="class")
    name: str | None = None
    arch: str | None = None
    compute_capability: str | None = None
    bound: str | None
    """The kernel driver that it is bound to."""
    numa_node: int | None = None
    boot_display: bool = False
    link: PciLink = PciLink()
    vgpu: bool | None = None
    uuid: str | None = None
    reported_name: str | None = None
    reported_capability: str | None = None
    memory_mib: int | None = None
    driver_version: str | None = None
    persistence: bool | None = None
    mig: str | None = None
    mig_pending: str | None = None
    slices: Slices | None = None
    """Its MIG partitions; None on a GPU without MIG, or if unknown."""
    fabric: Fabric | None = None
    vbios: str | None = None
    inforom: str | None = None
    """Version of the board's InfoROM."""
    ecc: bool | None = None
    power_limit: float | None = None
    """Watts."""
    way: Way | None = None
    nvlinks: NvLinks | None = None
    """None on a host with one GPU: its links have no other end."""


class SwitchDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An NVSwitch on PCI."""

    address: str
    pci_id: str


class NvSwitch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVSwitches that this machine manages: on PCI, or (fourth generation) through ConnectX managers."""

    kind: Literal["pci", "nvlink5"]
    pci: tuple[SwitchDevice, ...] = ()
    devices: int = 0
    managers: tuple[str, ...] = ()


class Certificate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate's owner; for loaded ones the kernel shows only the name and the key's identifier."""

    name: str | None = None
    issuer: str | None = None
    serial: str | None = None
    key: str | None = None


class SigningKey(Certificate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate with which DKMS signs modules."""

    path: str
    sha256: str
    enrolled: bool


class Firmware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """UEFI and what it enforces."""

    uefi: bool
    setup_mode: bool | None
    lockdown: str | None
    signatures_enforced: bool
    enrolled_keys: tuple[str, ...] = ()
    trusted_keys: tuple[Certificate, ...] = ()
    """The keys that the kernel trusts for modules, as far as it and the firmware show them."""
    signing_keys: tuple[SigningKey, ...] = ()
    password: str | None = None
    """The file with the one-time password of a key enrolment that waits for confirmation at the console."""


class CloudEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a cloud is about to do to a machine, in its words; `at` is the earliest time, empty for any moment."""

    what: str
    at: str = ""

    def __str__(self) -> str:
        """Return the event and its time."""
        return f"{self.what} " + (f"from {self.at}" if self.at else "at any moment")

    def near(self, now: datetime) -> bool:
        """Return whether it may begin within the hour; also if its time cannot be read."""
        for read in (datetime.fromisoformat, parsedate_to_datetime):
            with suppress(ValueError, TypeError):
                begins = read(self.at.replace("Z", "+00:00"))
                return begins.replace(tzinfo=begins.tzinfo or timezone.utc) <= now + timedelta(hours=1)
        return True


class Virtualisation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kind of machine; `driver_refused` is why no driver may be installed."""

    kind: str
    cloud: str | None
    machine_type: str | None = None
    """From the cloud's metadata service."""
    events: tuple[CloudEvent, ...] = ()
    vendor: str | None
    product: str | None
    laptop: bool
    container: str | None
    wsl: bool
    driver_refused: Literal["wsl", "container"] | None


class Session(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A graphical session: of a user, or the login greeter's."""

    type: str
    kind: str = field(name="class")


class OtherDisplay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A display adapter of another vendor."""

    address: str
    pci_id: str


class Display(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Graphical sessions, and display adapters of other vendors."""

    sessions: tuple[Session, ...] = ()
    manager: str | None = None
    hybrid: bool = False
    other_gpus: tuple[OtherDisplay, ...] = ()
    laptop: bool = False


class Disk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Disk space at a path that an install writes to; `same_as` names an earlier path on the same file system."""

    total: int
    free: int
    writable: bool
    same_as: str | None
