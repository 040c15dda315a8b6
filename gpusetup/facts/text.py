"""Facts as text of 80 columns; equal hosts are printed once."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from gpusetup.components import judge
from gpusetup.facts.classes import group
from gpusetup.facts.properties import rdma_ports
from gpusetup.model.facts import Facts, HostFacts, Nouveau, Packages
from gpusetup.model.facts_machine import Display, Gpu, Kernel, Virtualisation

_WIDTH = 80
_LABEL = 12


def describe(facts: Facts) -> str:
    """Return the whole document as text."""
    return "\n".join(_block(title, rows) for title, rows, _ in described(facts))


def described(facts: Facts) -> Iterator[tuple[str, list[tuple[str, str]], HostFacts | None]]:
    """Yield title, labelled rows and one host for each kind of host; then each host without an answer, with None."""
    for names in group(facts.hosts).values():
        title = names[0] if len(names) == 1 else f"{len(names)} hosts alike: " + ", ".join(names)
        yield title, list(_lines(facts.hosts[names[0]])), facts.hosts[names[0]]
    for name, failure in facts.failures.items():
        yield name, [("no answer", str(failure))], None


def _block(title: str, rows: list[tuple[str, str]]) -> str:
    lines = textwrap.wrap(title, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    for label, text in rows:
        lines += textwrap.wrap(
            text,
            _WIDTH,
            initial_indent="  " + label.ljust(_LABEL),
            subsequent_indent=" " * (_LABEL + 2),
            break_on_hyphens=False,
        )
    return "\n".join(lines) + "\n"


def _lines(host: HostFacts) -> Iterator[tuple[str, str]]:
    if host.simulated:
        yield "simulated", "GPUs, virtualisation and kernel come from a captured machine"
    yield "system", f"{host.os.name}, {host.arch}, glibc {host.os.glibc or 'unknown'}"
    yield "machine", _machine(host.virtualisation)
    if host.virtualisation.events:
        yield "cloud", "announces " + "; ".join(map(str, host.virtualisation.events))
    if host.virtualisation.driver_refused:
        yield "refused", f"do not install a driver here: this is {_refusal(host.virtualisation)}"
    yield "kernel", _kernel(host.kernel)
    yield "secure boot", {True: "on", False: "off", None: "unknown"}[host.secure_boot]
    yield "GPUs", _gpus(host.gpus)
    for cut in _cuts(host):
        yield "MIG", cut
    if host.nvswitch:
        count = len(host.nvswitch.pci) or host.nvswitch.devices or len(host.nvswitch.managers)
        yield "NVSwitch", f"{count} ({'on PCI' if host.nvswitch.kind == 'pci' else 'NVLink 5, through managers'})"
    if host.rdma:
        yield "RDMA", rdma_ports(host)
    yield "driver", _driver(host)
    yield "nouveau", _nouveau(host.nouveau)
    if host.cuda.toolkits:
        default = f"; default {host.cuda.default}" if host.cuda.default else ""
        yield "CUDA", ", ".join(f"{kit.version or '?'} in {kit.path}" for kit in host.cuda.toolkits) + default
    for label, libraries in (("cuDNN", host.cudnn), ("NCCL", host.nccl)):
        if libraries:
            yield label, ", ".join(f"{library.version} ({library.source})" for library in libraries)
    if host.containers.runtimes or host.containers.toolkit:
        toolkit = f"NVIDIA toolkit {host.containers.toolkit}" if host.containers.toolkit else "no NVIDIA toolkit"
        yield "containers", ", ".join(host.containers.runtimes) + "; " + toolkit
    yield "packages", _packages(host.packages)
    if host.display.sessions or host.display.hybrid:
        yield "display", _display(host.display)
    if host.processes:
        yield "GPU in use", ", ".join(f"{process.command} ({process.pid})" for process in host.processes[:6])
    if host.disks:
        yield (
            "free",
            ", ".join(f"{place} {disk.free / 2**30:.1f} GiB" for place, disk in host.disks.items() if not disk.same_as),
        )
    for python in host.pythons:
        frameworks = ", ".join(f"{name} {version}" for name, version in sorted(python.packages.items()))
        yield "Python", f"{python.version} {python.path}" + (f": {frameworks}" if frameworks else "")
    for begun in judge.drift.unfinished({}, judge.record(host)):
        yield "cut", f"{begun.what} is {begun.now}; gpusetup apply installs the stack, gpusetup remove removes it"
    for unknown in host.unreadable:
        yield "not read", f"{unknown.field}: {unknown.reason}"


def _machine(kind: Virtualisation) -> str:
    words = "bare metal" if kind.kind == "none" else f"{kind.kind} guest"
    named = " ".join(dict.fromkeys(part for part in (kind.vendor, kind.product, kind.machine_type) if part))
    return words + (f" on {kind.cloud}" if kind.cloud else "") + (f": {named}" if named else "")


def _refusal(kind: Virtualisation) -> str:
    if kind.wsl:
        return "WSL, which uses the driver of Windows"
    return f"a container ({kind.container}), which uses the driver of its host"


def _kernel(kernel: Kernel) -> str:
    target = kernel.target
    words = kernel.running
    if kernel.next != kernel.running:
        words += f"; boots next: {kernel.next} ({kernel.next_basis})"
    return words + ("; headers are there" if target and target.headers else "; no headers for it")


def _gpus(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "no NVIDIA GPU"
    kinds = Counter(
        f"{gpu.name or 'unknown product'} ({gpu.pci_id}"
        + (f", {gpu.arch}" if gpu.arch else "")
        + (f", {gpu.compute_capability}" if gpu.compute_capability else "")
        + (", vGPU" if gpu.vgpu else "")
        + ")"
        for gpu in gpus
    )
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items())


def _cuts(host: HostFacts) -> Iterator[str]:
    by_layout: dict[str, list[str]] = {}
    for number, gpu in enumerate(judge.probed(host)["gpus"]):
        if gpu["mig"] == "Enabled":
            layout = judge.mig.of_facts(gpu)
            told = judge.mig.text_of(layout) if layout is not None else "on; only root may read the instances"
            by_layout.setdefault(told, []).append(str(number))
    for told, numbers in by_layout.items():
        yield f"{told} on GPU {', '.join(numbers)}"


def _driver(host: HostFacts) -> str:
    driver = host.driver
    if driver is None:
        return "none"
    words = f"{driver.version or 'unknown version'}"
    words += f" {driver.flavour}" if driver.flavour else ""
    words += " from " + " and ".join(driver.origins) if driver.origins else " of unknown origin"
    if driver.loaded is None:
        words += ", not loaded"
    elif driver.loaded.version == driver.version:
        words += ", loaded"
    else:
        words += f", but {driver.loaded.version} is loaded"
    if driver.mismatch:
        words += f"; libraries are {driver.library}: reboot, or reload the module"
    if host.smi and not host.smi.ok and host.smi.why and driver.loaded:
        words += f"; nvidia-smi: {host.smi.why}"
    return words


def _nouveau(nouveau: Nouveau) -> str:
    words = ["loaded" if nouveau.loaded else "not loaded", "blacklisted" if nouveau.blacklisted else "not blacklisted"]
    if nouveau.in_initramfs:
        words.append("in the initramfs")
    words.append(
        {True: "would load at the next boot", False: "stays unloaded at the next boot", None: "next boot unknown"}[
            nouveau.loads_at_boot
        ]
    )
    return ", ".join(words)


def _packages(packages: Packages) -> str:
    if packages.manager is None:
        return "no supported package manager"
    words = [packages.manager, f"{len(packages.held)} held" if packages.held else "nothing held"]
    words += [f"in a bad state: {problem}" for problem in packages.problems[:3]]
    if packages.lock:
        words.append(f"in use by {packages.lock.command or 'process'} ({packages.lock.pid})")
    if packages.automatic_upgrades.enabled and not packages.automatic_upgrades.excludes_nvidia:
        words.append("upgrades itself, NVIDIA packages included")
    return ", ".join(words)


def _display(display: Display) -> str:
    words = [f"{session.type} session ({session.kind})" for session in display.sessions]
    if display.hybrid:
        words.append("hybrid with " + ", ".join(other.pci_id for other in display.other_gpus))
    return ", ".join(words)
