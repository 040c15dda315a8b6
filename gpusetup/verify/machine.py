"""One observed machine: the probe's document, with a property or method for each thing that checks read."""

import re
from functools import cached_property
from typing import Any

import msgspec

from gpusetup.components.record import read_applied
from gpusetup.errors import BadInputError
from gpusetup.model.applied import NO_LOCK, Applied
from gpusetup.model.facts_machine import CloudEvent
from gpusetup.model.settings import GpuDirect, MigLayout
from gpusetup.model.stack import Stack
from gpusetup.model.verdict import Level
from gpusetup.verify import smi
from gpusetup.verify.expected import expectations, gpus_of_type
from gpusetup.versions import nv

OBSERVATIONS = "gpusetup/observations/2"
Document = dict[str, Any]


class Wanted:
    """What the host should have, by the applied lock or by the caller's options."""

    def __init__(self, lock: Applied = NO_LOCK, *, gpus: int | None = None, hosts: int = 1) -> None:
        self._lock = lock
        self._stack = lock.stack or Stack()
        self.known = lock.stack is not None
        self.gpus = gpus
        self.hosts = hosts

    @property
    def flavour(self) -> str | None:
        """The flavour of the kernel module that the stack names: `open` or `proprietary`."""
        return self._stack.driver.module if self._stack.driver is not None else None

    def version(self, component: str) -> str | None:
        """Return the version that the stack names of a component."""
        chosen = self._stack.part(component)
        return chosen.version if chosen is not None else None

    def has(self, component: str) -> bool | None:
        """Return whether the component is part of the stack; None where no stack is known."""
        return self._stack.part(component) is not None if self.known else None

    def asks_for(self, *names: str) -> bool:
        """Return whether the stack has one of these packages; False where no stack is known."""
        return any(self.has(name) for name in names)

    @property
    def gpu_expected(self) -> str:
        """The reason to expect a GPU, from the caller or the lock; empty where there is none."""
        if self.gpus:
            return f"{self.gpus} expected"
        if self._lock.wanted is not None:
            ours = any(self.packages(group) for group in ("driver", "fabric", "cuda", "cudnn", "nccl"))
            return "what was applied here is for one" if ours or self.has("driver") else ""
        return "the lock is for one" if self.has("driver") else ""

    @property
    def mig(self) -> dict[str, MigLayout]:
        """The applied MIG layouts by PCI address; GPUs without one are left out."""
        wanted = self._lock.wanted
        return {layout.gpu: layout for layout in (wanted.mig or ())} if wanted is not None else {}

    @property
    def imex(self) -> tuple[str, ...]:
        """The machines of the applied IMEX domain; empty without one."""
        wish = self._lock.wanted.imex if self._lock.wanted is not None else None
        return wish.nodes if wish else ()

    @property
    def gpudirect(self) -> GpuDirect | None:
        """The applied settings of RDMA and GPUDirect; None without any."""
        return (self._lock.wanted.gpudirect or None) if self._lock.wanted is not None else None

    def packages(self, group: str) -> bool:
        """Return whether the host's record has system packages (no wheels) of a group, such as `containers`."""
        packages = self._lock.wanted.packages if self._lock.wanted is not None else None
        return packages is not None and bool(getattr(packages, group))


def _index(key: object) -> int:
    return int(str(key).partition("/")[0])


def _spent(part: Any, names: list[str]) -> float:
    if not names:
        return float((part.get("seconds") if isinstance(part, dict) else part) or 0)
    first, *more = names
    if first not in ("*", "+"):
        return _spent(part.get(first) if isinstance(part, dict) else None, more)
    parts = part.values() if isinstance(part, dict) else part or ()
    return (max if first == "*" else sum)([0.0, *(_spent(one, more) for one in parts)])


class Machine:
    """One host's observations."""

    def __init__(self, document: Document, wanted: Wanted | None = None) -> None:
        if document.get("schema") != OBSERVATIONS:
            raise BadInputError(
                "GS-501", f"this is not a document of observations ({document.get('schema')!r}, not {OBSERVATIONS!r})"
            )
        self.document = document
        self.level: Level = document["level"]
        facts = document.get("facts")
        self.facts: Document = facts if isinstance(facts, dict) else {"error": "the document contains no facts"}
        """The host probe's facts; `error` if it failed."""
        self.quick: Document = document.get("quick", {})
        self.sections: Document = document.get("sections", {})
        self.simulated = bool(document.get("simulated"))
        self.wanted = (
            wanted
            if wanted is not None and wanted.known
            else Wanted(self.recorded_lock(), gpus=wanted.gpus if wanted else None, hosts=wanted.hosts if wanted else 1)
        )

    def recorded_lock(self) -> Applied:
        """Return the lock that apply recorded on the machine."""
        state = self.facts.get("state")
        return read_applied(state.get("lock")) if isinstance(state, dict) else NO_LOCK

    # --- commands and collectors ---------------------------------------------------------------------------------

    def command(self, name: str) -> Document:
        """Return a command's answer: rc, stdout, stderr, error, seconds, deadline."""
        found = self.quick.get(name)
        return found if isinstance(found, dict) else {"error": "it did not end in time"}

    def collected(self, name: str) -> Document:
        """Return what a collector found; empty if it failed."""
        found = self.quick.get(name)
        return found if isinstance(found, dict) else {}

    def took(self, places: str) -> float:
        """Return the seconds of the slowest of these collectors and sections, such as `smi facts` or `memory/*`.

        `*` stands for parts that run at the same time, `+` for parts that run one after the other.
        """
        found = {**(self.document.get("collector_seconds") or {}), **self.sections}
        return max([0.0, *(_spent(found, place.split("/")) for place in places.split())])

    # --- GPUs ----------------------------------------------------------------------------------------------------

    @cached_property
    def gpus(self) -> tuple[smi.SmiGpu, ...]:
        """The GPUs that nvidia-smi lists."""
        return smi.parse_gpus(self.command("smi").get("stdout", ""))

    @cached_property
    def pci_gpus(self) -> tuple[Document, ...]:
        """The NVIDIA display and 3D controllers on the PCI bus."""
        found = self.facts.get("gpus")
        return tuple(found) if isinstance(found, list) else ()

    @property
    def only(self) -> tuple[int, ...]:
        """The indexes of the GPUs to measure, where the caller named some."""
        return tuple(self.document.get("only") or ())

    @property
    def shown(self) -> int:
        """The number of GPUs that programs are shown."""
        return len(self.only or self.gpus)

    @cached_property
    def machine_type(self) -> str:
        """The cloud's name of the machine type; empty outside a cloud."""
        return str((self.facts.get("virtualisation") or {}).get("machine_type") or "")

    @property
    def gpus_wanted(self) -> int | None:
        """The number of GPUs that the caller or the baseline expects, else that the machine type has."""
        return self.wanted.gpus or gpus_of_type(self.machine_type)

    @property
    def gpu_expected(self) -> str:
        """The reason to expect a GPU, also by the machine type; empty where there is none."""
        number = gpus_of_type(self.machine_type)
        return self.wanted.gpu_expected or (f"a {self.machine_type} has {number}" if number else "")

    @cached_property
    def announced(self) -> tuple[CloudEvent, ...]:
        """The events that the cloud announces for this machine, such as maintenance."""
        told = (self.facts.get("virtualisation") or {}).get("events")
        try:
            return msgspec.convert(told or (), tuple[CloudEvent, ...])
        except msgspec.ValidationError:
            return ()

    @property
    def has_gpu(self) -> bool:
        """Whether PCI or nvidia-smi shows an NVIDIA GPU (WSL shows none on PCI)."""
        return bool(self.pci_gpus or self.gpus)

    @cached_property
    def capabilities(self) -> dict[int, str]:
        """Compute capability by GPU index."""
        found = {}
        for line in self.command("smi_query").get("stdout", "").splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) >= 4 and cells[0].isdigit() and re.fullmatch(r"\d+\.\d", cells[3]):
                found[int(cells[0])] = cells[3]
        return found

    @cached_property
    def nvlinks(self) -> tuple[smi.NvLink, ...]:
        """Every NVLink of every GPU."""
        return smi.nvlink_rates(self.command("nvlink_status").get("stdout", ""))

    @cached_property
    def topology(self) -> tuple[tuple[str, ...], ...]:
        """How each GPU reaches each other one, as `nvidia-smi topo -m` names it."""
        return smi.parse_topology(self.command("topology").get("stdout", ""))

    def nvlink_bandwidth(self, gpu: int) -> tuple[int, float]:
        """Return how many links of a GPU are up, and the sum of their rates each way in GB/s."""
        rates = [link.rate for link in self.nvlinks if link.gpu == gpu and link.rate is not None]
        return len(rates), sum(rates)

    @property
    def nvswitch(self) -> bool:
        """Whether this machine manages the NVSwitches that join its GPUs."""
        return self.facts.get("nvswitch") is not None

    def mig(self, gpu: smi.SmiGpu) -> bool:
        """Return whether MIG is on."""
        return gpu.text("mig_mode/current_mig") == "Enabled"

    @cached_property
    def busy(self) -> frozenset[int]:
        """The indexes of GPUs on which other processes compute, or began to while they were measured."""
        found = {gpu["index"] for gpu in self.document.get("gpus", []) if gpu.get("processes") or gpu.get("joined")}
        return frozenset(found | {_index(key) for key, worker in self.workers.items() if worker.get("busy")})

    def beside_job(self, key: object) -> bool:
        """Return whether another process computes on the GPU of a worker or an answer."""
        return _index(key) in self.busy

    # --- driver --------------------------------------------------------------------------------------------------

    @property
    def driver(self) -> Document:
        """The host probe's facts about the driver; empty without one."""
        return self.facts.get("driver") or {}

    @property
    def module_version(self) -> str | None:
        """Version of the loaded kernel module."""
        return (self.driver.get("loaded") or {}).get("version")

    @property
    def module_flavour(self) -> str | None:
        """`open` or `proprietary`: the flavour of the loaded kernel module."""
        return (self.driver.get("loaded") or {}).get("flavour")

    def service(self, name: str) -> Document | None:
        """Return systemd's state of a unit, by the probe's name for it; None if it is not installed."""
        return (self.facts.get("services") or {}).get(name)

    def compiles_ptx_of(self, cuda: str | None) -> bool:
        """Return whether the driver's CUDA is new enough for a build's PTX; True if either version is unknown."""
        told = re.search(r"<cuda_version>\s*(\d+\.\d+)", self.command("smi").get("stdout", ""))
        return told is None or not cuda or nv(told[1]) >= nv(cuda)

    # --- workers -------------------------------------------------------------------------------------------------

    @property
    def workers(self) -> dict[str, Document]:
        """Each worker's answers, by GPU or GPU/slice."""
        found = self.sections.get("workers")
        return found if isinstance(found, dict) else {}

    def answers(self, section: str) -> dict[str, Document]:
        """Return a measurement's answers by GPU."""
        found = self.sections.get(section)
        return (
            {key: value for key, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}
        )

    def opened(self, key: str) -> Document:
        """Return a GPU's properties from when a worker opened it, or the error."""
        found = self.workers.get(key, {}).get("open", {})
        return found if isinstance(found, dict) else {}


_GENERATIONS = {"2.5": "1", "5.0": "2", "8.0": "3", "16.0": "4", "32.0": "5", "64.0": "6"}
"""PCI Express generations by the rate in GT/s that the kernel shows."""


def adapters(machine: Machine) -> list[Document]:
    """Return the adapters that the probe found."""
    return list((machine.facts.get("rdma") or {}).get("hcas") or ())


def active_ports(machine: Machine) -> list[tuple[Document, Document]]:
    """Return every active port with its adapter."""
    return [(hca, port) for hca in adapters(machine) for port in hca["ports"] if port.get("state") == "ACTIVE"]


def link_rate(hca: Document) -> float | None:
    """Return the current rate of an adapter's PCI Express link, Gb/s each way; None if unknown."""
    link = hca.get("link") or {}
    speed = re.match(r"[\d.]+", str(link.get("speed") or ""))
    lane = expectations().pcie_lane.get(_GENERATIONS.get(speed[0], "") if speed else "")
    return lane * link["width"] * 8 if lane and link.get("width") else None


def network_rate(machine: Machine, gpus: int) -> tuple[float, int]:
    """Return the sum of the fastest ports' rates, GB/s each way, and their number: at most one for each GPU.

    A port counts no faster than its PCI Express link.
    """
    rates = []
    for hca, port in active_ports(machine):
        rate, room = port.get("rate") or 0.0, link_rate(hca)
        rates.append(min(rate, room) if room else rate)
    taken = sorted(rates, reverse=True)[:gpus]
    return sum(taken) / 8, len(taken)
