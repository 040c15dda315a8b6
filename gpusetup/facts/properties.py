"""Properties of hosts and GPUs as single values: columns of tables and of comparisons, and the rows of a fleet."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpusetup.model.facts import Facts, HostFacts
from gpusetup.model.facts_machine import Gpu


class Property(NamedTuple):
    """A property of a host or GPU; `read` returns its value as text, None if unknown."""

    id: str
    title: str
    read: Callable[[Any], str | None]


def _as_text(value: object) -> str | None:
    """Return a value as text: yes or no, whole numbers without a decimal point; None for an empty value."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting(name: str) -> Callable[[HostFacts], str | None]:
    return lambda host: None if host.settings is None else _as_text(getattr(host.settings, name))


def _way(name: str) -> Callable[[Gpu], str | None]:
    return lambda gpu: None if gpu.way is None else _as_text(getattr(gpu.way, name))


def _loaded(host: HostFacts) -> str | None:
    if host.driver is None:
        return None
    return host.driver.loaded.version if host.driver.loaded else "none"


def _versions(values: Iterable[str | None]) -> str:
    return ", ".join(sorted({value for value in values if value})) or "none"


def _machine(host: HostFacts) -> str | None:
    kind = host.virtualisation
    return " ".join(part for part in (kind.vendor, kind.product) if part) or None


def _bios(host: HostFacts) -> str | None:
    told = host.settings
    if told is None:
        return None
    return " ".join(part for part in (told.bios_vendor, told.bios_version, told.bios_date) if part) or None


def _acs(gpu: Gpu) -> str | None:
    if gpu.way is None or gpu.way.acs_redirect is None:
        return None
    return "on" if gpu.way.acs_redirect else "off"


def rdma_ports(host: HostFacts) -> str:
    """Return the RDMA ports, equal ones counted: 8 x 400 Gb/s InfiniBand, 1 x DOWN."""
    told: Counter[str] = Counter()
    for port in (port for hca in (host.rdma.hcas if host.rdma else ()) for port in hca.ports):
        rate = f"{port.rate:g} Gb/s " if port.rate else ""
        told[f"{rate}{port.layer or ''}".strip() if port.state == "ACTIVE" else port.state or "unknown"] += 1
    return ", ".join(f"{count} x {what}" for what, count in told.items()) or "none"


HOST: tuple[Property, ...] = (
    Property("os", "system", lambda host: f"{host.os.label} {host.arch}"),
    Property("kernel", "kernel", lambda host: host.kernel.running),
    Property("driver", "driver", lambda host: host.driver.version if host.driver else "none"),
    Property("driver.loaded", "loaded driver", _loaded),
    Property("driver.flavour", "kernel modules", lambda host: host.driver.flavour if host.driver else None),
    Property("cuda", "CUDA", lambda host: _versions(kit.version for kit in host.cuda.toolkits)),
    Property("cudnn", "cuDNN", lambda host: _versions(item.version for item in host.cudnn)),
    Property("nccl", "NCCL", lambda host: _versions(item.version for item in host.nccl)),
    Property("container_toolkit", "container toolkit", lambda host: host.containers.toolkit or "none"),
    Property("secure_boot", "Secure Boot", lambda host: _as_text(host.secure_boot)),
    Property("machine", "machine", _machine),
    Property("board", "board", _setting("board")),
    Property("bios", "BIOS", _bios),
    Property("cpu", "CPU", _setting("cpu")),
    Property("microcode", "microcode", _setting("microcode")),
    Property("smt", "SMT", _setting("smt")),
    Property("governor", "CPU governor", _setting("governor")),
    Property("numa_nodes", "NUMA nodes", _setting("numa_nodes")),
    Property("iommu", "IOMMU", _setting("iommu")),
    Property("rdma", "RDMA ports", rdma_ports),
    Property("arguments", "kernel arguments", lambda host: " ".join(host.kernel.cmdline) or "none"),
)

GPU: tuple[Property, ...] = (
    Property("gpu.memory", "GPU memory MiB", lambda gpu: _as_text(gpu.memory_mib)),
    Property("gpu.vbios", "VBIOS", lambda gpu: gpu.vbios),
    Property("gpu.inforom", "InfoROM", lambda gpu: gpu.inforom),
    Property("gpu.power_limit", "power limit W", lambda gpu: _as_text(gpu.power_limit)),
    Property("gpu.ecc", "ECC", lambda gpu: _as_text(gpu.ecc)),
    Property("gpu.mig", "MIG", lambda gpu: gpu.mig),
    Property("gpu.persistence", "persistence", lambda gpu: _as_text(gpu.persistence)),
    Property("gpu.fabric", "fabric", lambda gpu: gpu.fabric.state if gpu.fabric else None),
    Property("nvlink.up", "NVLinks up", lambda gpu: _as_text(gpu.nvlinks.up) if gpu.nvlinks else None),
    Property("nvlink.slowest", "NVLink GB/s", lambda gpu: _as_text(gpu.nvlinks.slowest) if gpu.nvlinks else None),
    Property("pcie.width", "PCIe lanes", lambda gpu: _as_text(gpu.link.width)),
    Property("pcie.best", "PCIe best", lambda gpu: gpu.link.max_speed),
    Property("pcie.slot", "PCIe slot", lambda gpu: gpu.link.slot_max_speed),
    Property("pcie.payload", "PCIe payload", _way("max_payload")),
    Property("pcie.read_request", "PCIe read request", _way("max_read_request")),
    Property("pcie.bar", "BAR MiB", _way("bar_mib")),
    Property("pcie.iommu", "IOMMU of GPU", _way("iommu")),
    Property("pcie.acs", "ACS redirect", _acs),
)


def gpus_named(host: HostFacts) -> str:
    """Return the GPUs with counts: `8 x H200`."""
    kinds = Counter(gpu.name or gpu.reported_name or gpu.pci_id for gpu in host.gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(kinds.items())) or "no NVIDIA GPU"


def summary(values: list[str | None]) -> str:
    """Return the values of several GPUs as one text: each once with its count, the most frequent first."""
    known = Counter(value for value in values if value is not None)
    if len(known) <= 1:
        return next(iter(known), "")
    return ", ".join(f"{count}x {value}" for value, count in known.most_common())


SHORT = ("host", "system", "GPUs", "driver", "CUDA", "remark")
COLUMNS = ("host", "gpus", *(item.id for item in HOST), *(item.id for item in GPU), "failure")


def short_rows(facts: Facts) -> list[tuple[str, ...]]:
    """Return rows for a table of 80 columns; hosts without an answer come last."""
    rows = [_short(name, host) for name, host in facts.hosts.items()]
    return rows + [(name, "", "", "", "", failure.message) for name, failure in facts.failures.items()]


def _short(name: str, host: HostFacts) -> tuple[str, ...]:
    values = {item.id: item.read(host) or "" for item in HOST}
    return (name, host.os.label, gpus_named(host), values["driver"], values["cuda"], _remark(host))


def _remark(host: HostFacts) -> str:
    """Return the most important problem of a host; "in use" or "" if it has none."""
    driver = host.driver
    if host.virtualisation.driver_refused:
        return f"no driver here: {host.virtualisation.driver_refused}"
    if driver is not None and driver.loaded is None:
        return "driver not loaded"
    if driver is not None and driver.mismatch:
        return f"libraries are {driver.library}: reboot"
    if host.nouveau.loaded:
        return "nouveau is loaded"
    if host.smi is not None and not host.smi.ok and driver is not None:
        return "nvidia-smi fails"
    return "in use" if host.processes else ""


def full_rows(facts: Facts) -> list[tuple[str, ...]]:
    """Return a row with all properties for each host; if its GPUs differ, values have counts."""
    rows = []
    for name, host in facts.hosts.items():
        own = [item.read(host) or "" for item in HOST]
        gpus = [summary([item.read(gpu) for gpu in host.gpus]) for item in GPU]
        rows.append((name, gpus_named(host), *own, *gpus, ""))
    blank = ("",) * (len(COLUMNS) - 2)
    return rows + [(name, *blank, failure.message) for name, failure in facts.failures.items()]
