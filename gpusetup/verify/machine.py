"""One observed machine as the checks see it: the probe's document with names for what they ask."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.components.record import read_applied
from gpusetup.errors import BadInputError
from gpusetup.model.applied import NO_LOCK
from gpusetup.model.facts_machine import CloudEvent
from gpusetup.model.stack import Stack
from gpusetup.verify import smi
from gpusetup.verify.expected import gpus_of_type
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.model.applied import Applied
    from gpusetup.model.settings import GpuDirect, MigLayout
    from gpusetup.model.verdict import Level

OLDER = "gpusetup/observations/1"
OBSERVATIONS = "gpusetup/observations/2"
Document = dict[str, Any]


class Wanted:
    """What the host should have: from the lock that was applied, or what the caller says."""

    def __init__(self, lock: Applied = NO_LOCK, *, gpus: int | None = None, hosts: int = 1) -> None:
        self._lock = lock
        self._stack = lock.stack or Stack()
        self.known = lock.stack is not None
        self.gpus = gpus
        self.hosts = hosts

    @property
    def flavour(self) -> str | None:
        """The flavour of the kernel module that is wanted."""
        return self._stack.driver.module if self._stack.driver is not None else None

    def version(self, component: str) -> str | None:
        """The version that is wanted of a component."""
        chosen = self._stack.part(component)
        return chosen.version if chosen is not None else None

    def has(self, component: str) -> bool | None:
        """Tell whether the component is part of the stack; None when nothing says what the stack is."""
        return self._stack.part(component) is not None if self.known else None

    def asks_for(self, *names: str) -> bool:
        """Tell whether the stack has one of these packages: nothing asks for any where no stack is known."""
        return any(self.has(name) for name in names)

    @property
    def gpu_expected(self) -> str:
        """Say what expects a GPU here; empty: nothing does."""
        if self.gpus:
            return f"{self.gpus} expected"
        if self._lock.wanted is not None:
            ours = any(self.packages(group) for group in ("driver", "fabric", "cuda", "cudnn", "nccl"))
            return "what was applied here is for one" if ours or self.has("driver") else ""
        return "the lock is for one" if self.has("driver") else ""

    @property
    def mig(self) -> dict[str, MigLayout]:
        """How GPUs are to be cut, by PCI address; nothing of those that nobody asked for."""
        wanted = self._lock.wanted
        return {layout.gpu: layout for layout in (wanted.mig or ())} if wanted is not None else {}

    @property
    def imex(self) -> tuple[str, ...]:
        """The machines of the NVLink domain that was applied; nothing where none was."""
        wish = self._lock.wanted.imex if self._lock.wanted is not None else None
        return wish.nodes if wish else ()

    @property
    def gpudirect(self) -> GpuDirect | None:
        """RDMA and the ways to GPU memory that were applied; None where none were."""
        return (self._lock.wanted.gpudirect or None) if self._lock.wanted is not None else None

    def packages(self, group: str) -> bool:
        """Tell whether the host's record has system packages of a group (`cuda`, `containers`): not wheels."""
        packages = self._lock.wanted.packages if self._lock.wanted is not None else None
        return packages is not None and bool(getattr(packages, group))


class Machine:
    """One host's observations."""

    def __init__(self, document: Document, wanted: Wanted | None = None, *, simulated: bool = False) -> None:
        if document.get("schema") != OBSERVATIONS:
            if document.get("schema") == OLDER:
                raise BadInputError(
                    "GS-501", f"these observations have an old format ({OLDER}) that this gpusetup cannot read"
                )
            raise BadInputError(
                "GS-501", f"this is not a document of observations ({document.get('schema')!r}, not {OBSERVATIONS!r})"
            )
        self.document = document
        self.level: Level = document["level"]
        facts = document.get("facts")
        self.facts: Document = facts if isinstance(facts, dict) else {"error": "the document contains no facts"}
        """What the host probe told; `error` when it failed."""
        self.quick: Document = document.get("quick", {})
        self.sections: Document = document.get("sections", {})
        self.simulated = simulated or bool(document.get("simulated"))
        self.wanted = (
            wanted
            if wanted is not None and wanted.known
            else Wanted(self.recorded_lock(), gpus=wanted.gpus if wanted else None, hosts=wanted.hosts if wanted else 1)
        )

    def recorded_lock(self) -> Applied:
        """What apply recorded on the machine."""
        state = self.facts.get("state")
        return read_applied(state.get("lock")) if isinstance(state, dict) else NO_LOCK

    # --- commands and collectors ---------------------------------------------------------------------------------

    def command(self, name: str) -> Document:
        """What a command answered: rc, stdout, stderr, error, seconds, deadline."""
        found = self.quick.get(name)
        return found if isinstance(found, dict) else {"error": "missing", "stdout": "", "stderr": "", "rc": None}

    def collected(self, name: str) -> Document:
        """What a collector found, empty when it failed."""
        found = self.quick.get(name)
        return found if isinstance(found, dict) else {}

    def took(self, *names: str) -> float:
        """Seconds the named collectors took, at most: they run at the same time."""
        seconds = self.document.get("collector_seconds", {})
        return max((float(seconds.get(name, 0.0)) for name in names), default=0.0)

    # --- GPUs ----------------------------------------------------------------------------------------------------

    @cached_property
    def gpus(self) -> tuple[smi.SmiGpu, ...]:
        """GPUs that nvidia-smi lists."""
        return smi.parse_gpus(self.command("smi").get("stdout", ""))

    @cached_property
    def pci_gpus(self) -> tuple[Document, ...]:
        """NVIDIA display and 3D controllers on the PCI bus."""
        found = self.facts.get("gpus")
        return tuple(found) if isinstance(found, list) else ()

    @cached_property
    def machine_type(self) -> str:
        """The cloud's name for what this machine is; empty where no cloud said it."""
        return str((self.facts.get("virtualisation") or {}).get("machine_type") or "")

    @property
    def gpus_wanted(self) -> int | None:
        """How many GPUs somebody expects here, or the machine type has."""
        return self.wanted.gpus or gpus_of_type(self.machine_type)

    @property
    def gpu_expected(self) -> str:
        """Say what expects a GPU here; empty: nothing does."""
        number = gpus_of_type(self.machine_type)
        return self.wanted.gpu_expected or (f"a {self.machine_type} has {number}" if number else "")

    @cached_property
    def announced(self) -> tuple[CloudEvent, ...]:
        """What the cloud is about to do to this machine."""
        told = (self.facts.get("virtualisation") or {}).get("events")
        try:
            return msgspec.convert(told or (), tuple[CloudEvent, ...])
        except msgspec.ValidationError:
            return ()

    @property
    def has_gpu(self) -> bool:
        """There is an NVIDIA GPU, by PCI or by nvidia-smi (WSL shows none on PCI)."""
        return bool(self.pci_gpus or self.gpus)

    @cached_property
    def capabilities(self) -> dict[int, str]:
        """Compute capability by GPU index, from the named query."""
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
        """How each GPU reaches each other."""
        return smi.parse_topology(self.command("topology").get("stdout", ""))

    def nvlink_bandwidth(self, gpu: int) -> tuple[int, float]:
        """Links that are up on a GPU and the sum of their rates each way in GB/s."""
        rates = [link.rate for link in self.nvlinks if link.gpu == gpu and link.rate is not None]
        return len(rates), sum(rates)

    @property
    def nvswitch(self) -> bool:
        """GPUs meet in NVSwitches that this machine itself runs."""
        return self.facts.get("nvswitch") is not None

    def mig(self, gpu: smi.SmiGpu) -> bool:
        """MIG is on."""
        return gpu.text("mig_mode/current_mig") == "Enabled"

    @cached_property
    def busy(self) -> frozenset[int]:
        """GPUs on which somebody's processes compute."""
        return frozenset(gpu["index"] for gpu in self.document.get("gpus", []) if gpu.get("processes"))

    # --- driver --------------------------------------------------------------------------------------------------

    @property
    def driver(self) -> Document:
        """What the host probe found of the driver; empty when there is no trace of one."""
        return self.facts.get("driver") or {}

    @property
    def module_version(self) -> str | None:
        """Version of the kernel module that is loaded."""
        return (self.driver.get("loaded") or {}).get("version")

    @property
    def module_flavour(self) -> str | None:
        """`open` or `proprietary`, of the module that is loaded."""
        return (self.driver.get("loaded") or {}).get("flavour")

    @property
    def library_versions(self) -> dict[str, tuple[str, ...]]:
        """Versions of the user-space driver libraries."""
        return {name: tuple(versions) for name, versions in self.driver.get("libraries", {}).items()}

    def service(self, name: str) -> Document | None:
        """A unit as systemd sees it, by the probe's name for it; None when it is not installed."""
        return (self.facts.get("services") or {}).get(name)

    def compiles_ptx_of(self, cuda: str | None) -> bool:
        """Tell whether the driver is as new as a build's CUDA and takes its PTX; granted when one is not known."""
        told = re.search(r"<cuda_version>\s*(\d+\.\d+)", self.command("smi").get("stdout", ""))
        return told is None or not cuda or nv(told[1]) >= nv(cuda)

    # --- workers -------------------------------------------------------------------------------------------------

    @property
    def workers(self) -> dict[str, Document]:
        """What each GPU's worker answered, by GPU (or GPU/slice)."""
        found = self.sections.get("workers")
        return found if isinstance(found, dict) else {}

    def answers(self, section: str) -> dict[str, Document]:
        """A measurement's answers by GPU."""
        found = self.sections.get(section)
        return (
            {key: value for key, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}
        )

    def opened(self, key: str) -> Document:
        """The properties of an opened device."""
        found = self.workers.get(key, {}).get("open", {})
        return found if isinstance(found, dict) else {}
