"""Adapters with RDMA: ports, the way to GPU memory, the limit of locked memory.

`rdma.link`: a port that is down, or that no subnet manager has set up (INIT), carries nothing. One below its own
highest rate (ibportstate, ethtool), or below ports on cards of the same kind, has a bad or wrong cable, or a slower
switch. PCI Express must carry as much as the port.

`rdma.gpudirect`: by DMA-BUF (open kernel modules, kernel 5.12) or nvidia_peermem, adapters read GPU memory themselves;
without either every byte goes through the host's memory. `rdma.modules`: the modules that the settings need are loaded
(IP over InfiniBand, GDRCopy, nvidia-fs). `rdma.memlock`: RDMA locks its buffers; with the usual limit of 8 MiB
registering them fails.

On a host with `gpusetup_rdma` they fail; on other machines they warn.

To do: `ibstat`, `ibdev2netdev`, `mlxlink`; opensm or the switch's subnet manager for INIT; `gpusetup_rdma`,
`gpusetup_gpudirect` and `gpusetup apply` (docs/guides/rdma.md).
"""

import re
from typing import Any

from gpusetup.components.judge import gpudirect
from gpusetup.components.rdma import Driver, short_of
from gpusetup.matrix.load import matrix
from gpusetup.model.verdict import Finding, Item, Verdict
from gpusetup.verify.machine import Machine, active_ports, adapters, link_rate
from gpusetup.verify.registry import check, from_items


def _here(machine: Machine) -> bool:
    return bool(adapters(machine)) or _asked(machine)


def _asked(machine: Machine) -> bool:
    wish = machine.wanted.gpudirect
    return wish is not None and wish.stack != "none"


def grave(machine: Machine) -> Verdict:
    """Return the verdict on what does not work: a failure if somebody asked for RDMA, else a warning."""
    return "fail" if _asked(machine) else "warn"


@check("rdma.link", "Ports of RDMA adapters at full rate", needs=("gpu",), applies=_here)
def judge(machine: Machine) -> Finding:
    """Judge every port."""
    found = adapters(machine)
    if not found:
        return Finding(
            "fail", "gpusetup_rdma was applied, but the host shows no adapter: is its module loaded? (lspci, dmesg)"
        )
    best: dict[tuple[Any, Any], float] = {}
    for hca, port in active_ports(machine):
        kind = hca.get("board") or hca.get("pci_id"), port.get("layer")
        best[kind] = max(best.get(kind, 0.0), port.get("rate") or 0.0)
    up = len(active_ports(machine))
    items = [
        _port(machine, hca, port, best.get((hca.get("board") or hca.get("pci_id"), port.get("layer")), 0.0), up)
        for hca in found
        for port in hca["ports"]
    ]
    rates = sorted({f"{port['rate']:g}" for _hca, port in active_ports(machine) if port.get("rate")})
    return from_items(items, f"{up} ports at {', '.join(rates) or 'unknown'} Gb/s", unit="Gb/s")


def _port(machine: Machine, hca: dict[str, Any], port: dict[str, Any], sisters: float, up: int) -> Item:
    subject = hca["name"] if len(hca["ports"]) == 1 else f"{hca['name']} port {port['number']}"
    state, rate = port.get("state"), port.get("rate")
    if state in {"INIT", "ARMED"} and port.get("layer") == "InfiniBand":
        text = f"is {state}: no subnet manager has set it up (opensm, or the switch's)"
        return Item(subject, grave(machine), text, state, "ACTIVE")
    if state != "ACTIVE":
        # A port without a cable is usual where others carry the traffic.
        verdict = "warn" if up else grave(machine)
        text = (
            f"is {state or 'of unknown state'} ({port.get('physical') or 'unknown'}): no cable, or nothing at its end"
        )
        return Item(subject, verdict, text, state, "ACTIVE")
    able = port.get("fastest") or sisters
    if rate and able and rate < able * 0.99:
        whose = "it can have" if port.get("fastest") else "its sisters have"
        text = f"runs at {rate:g} Gb/s, {whose} {able:g}"
        return Item(subject, "warn", text, rate, able, able)
    room = link_rate(hca)
    if rate and room and room < rate:
        link = hca.get("link") or {}
        text = f"PCI Express x{link.get('width')} at {link.get('speed')} carries {room:.0f} of its {rate:g} Gb/s"
        return Item(subject, "warn", text, round(room), rate, rate)
    if not rate:
        return Item(subject, "skip", "its rate is not known")
    return Item(subject, "pass", measured=rate, expected=able or None, limit=able or None)


@check("rdma.gpudirect", "Adapters reach GPU memory", needs=("gpu",), applies=_here)
def direct(machine: Machine) -> Finding:
    """Judge whether the chosen way to GPU memory works; without a choice, whether any way does."""
    wish, modules = machine.wanted.gpudirect, machine.facts.get("modules") or ()
    peermem = next((name for name in ("nvidia_peermem", "nv_peer_mem") if name in modules), "")
    lacking = _without_dma_buf(machine)
    if wish is not None and wish.memory == "nvidia-peermem":
        if peermem:
            return Finding("pass", f"by {peermem}, which is loaded")
        return Finding("fail", "nvidia_peermem is not loaded: modprobe nvidia_peermem, and dmesg shows why")
    if wish is not None and wish.memory == "dma-buf" and lacking:
        return Finding("fail", f"DMA-BUF was chosen, and cannot be: {lacking}")
    if not lacking:
        return Finding("pass", f"by DMA-BUF: open kernel modules {machine.module_version}")
    if peermem:
        return Finding("pass", f"by {peermem}, which is loaded; no DMA-BUF: {lacking}")
    return Finding("warn", f"data goes through the host's memory: no nvidia_peermem is loaded; no DMA-BUF: {lacking}")


def _without_dma_buf(machine: Machine) -> str:
    """Return why DMA-BUF is not possible; empty if it is."""
    if machine.module_version is None:
        return "no driver is loaded"
    driver = Driver(machine.module_version, machine.module_flavour or "")
    kernel = str((machine.facts.get("kernel") or {}).get("running") or "")
    return short_of(matrix().rdma.dma_buf, driver, kernel, machine.facts.get("arch", ""))


def _modules(machine: Machine) -> tuple[str, ...]:
    wish = machine.wanted.gpudirect
    return wish.modules if wish is not None else ()


@check(
    "rdma.modules", "Modules of RDMA and GPUDirect are loaded", needs=("gpu",), applies=lambda one: bool(_modules(one))
)
def modules(machine: Machine) -> Finding:
    """Judge whether the modules that the settings need are loaded: ib_ipoib, gdrdrv, nvidia_fs, nvidia_peermem."""
    if not _modules(machine):
        return Finding("unsupported", "no setting needs a module of RDMA or GPUDirect")
    loaded = machine.facts.get("modules") or ()
    lacking = [name for name in _modules(machine) if name not in loaded]
    if lacking:
        return Finding("fail", f"{', '.join(lacking)}: not loaded; modprobe {lacking[0]}, and dmesg shows why")
    return Finding("pass", ", ".join(_modules(machine)))


@check("rdma.memlock", "Programs may lock memory for RDMA", needs=("gpu",), applies=_here)
def memlock(machine: Machine) -> Finding:
    """Judge the limit of locked memory for users who log in."""
    limit = (machine.facts.get("rdma") or {}).get("memlock")
    if not limit:
        return Finding("skip", "the limit is unknown without an adapter (see rdma.link)")
    if limit["unlimited"] or limit["lifted"]:
        return Finding("pass", "unlimited" if limit["unlimited"] else "unlimited for everyone who logs in")
    kib = limit.get("kib")
    text = f"{kib / 1024:g} MiB" if kib is not None else "of unknown size"
    return Finding(grave(machine), f"only {text} may be locked: ibv_reg_mr fails; add memlock to limits.d", kib)


_MODES = {"p2pdma": "p2pdma", "c2c": "p2pdma", "nvfs": "nvidia-fs", "compat": "compat"}


def _storage_asked(machine: Machine) -> bool:
    wish = machine.wanted.gpudirect
    return wish is not None and wish.storage != "none"


@check("gds.mode", "Files come straight into GPU memory", needs=("gpu",), applies=_storage_asked, took="gdscheck")
def gds_mode(machine: Machine) -> Finding:
    """GPUDirect Storage reads files directly into GPU memory in the chosen mode, not in compatibility mode.

    cuFile falls back to copying through the host's memory (compat) without an error, and every functional test passes
    with it. So the check judges the mode that the toolkit's `gdscheck -p` prints for NVMe: p2pdma or nvfs (`Supported`
    in older releases). Without gdscheck it judges the parts: the module, the options of the loaded modules,
    cufile.json.

    To do: `gdscheck -p`; `gpusetup_gds` and `gpusetup apply`, which reboots for P2PDMA; docs/guides/rdma.md has what
    each needs.
    """
    wish = machine.wanted.gpudirect
    wanted = wish.storage if wish is not None else "none"
    told = machine.command("gdscheck").get("stdout", "")
    modes = modes_of(told)
    if modes is None:
        return _mode_by_parts(machine, wanted)
    if wanted in modes:
        return Finding("pass", f"by {wanted}, as gdscheck says", wanted, wanted)
    now = ", ".join(modes) or "compat"
    why = "; ".join(gpudirect.of_storage(machine.facts.get("storage"))) if wanted == "p2pdma" else ""
    text = f"files are copied through the host's memory ({now}), and {wanted} was applied" + (f": {why}" if why else "")
    if "compat" not in now:
        text = f"files come by {now}, and {wanted} was applied"
    return Finding("fail", text, now, wanted)


def modes_of(told: str) -> tuple[str, ...] | None:
    """Return the modes that gdscheck prints for local NVMe drives; None if it prints no line about them."""
    lines = dict(re.findall(r"^ *(NVMe(?: P2PDMA)?) *: *(.*?)\s*$", told, re.MULTILINE))
    if "NVMe" not in lines:
        return None
    named = tuple(dict.fromkeys(_MODES[word] for word in re.findall(r"\w+", lines["NVMe"]) if word in _MODES))
    if named:
        return named
    # Releases before 1.16 print for each mode whether it is supported; without any, cuFile copies.
    older = {"NVMe P2PDMA": "p2pdma", "NVMe": "nvidia-fs"}
    return tuple(mode for name, mode in older.items() if lines.get(name) == "Supported") or ("compat",)


def _mode_by_parts(machine: Machine, wanted: str) -> Finding:
    storage = machine.facts.get("storage")
    if wanted == "nvidia-fs":
        if "nvidia_fs" not in (machine.facts.get("modules") or ()):
            return Finding("fail", "nvidia_fs is not loaded: modprobe nvidia_fs, and dmesg shows why")
        return Finding(
            "warn", "nvidia_fs is loaded; whether the drives take it, only gdscheck -p says (package gds-tools)"
        )
    lacking = gpudirect.of_storage(storage)
    if storage is None or not storage.get("use_pci_p2pdma"):
        lacking = [*lacking, "cufile.json does not allow use_pci_p2pdma"]
    if lacking:
        return Finding("fail", f"files are copied through the host's memory: {'; '.join(lacking)}")
    return Finding(
        "warn", "everything for P2PDMA is set; whether it is used, only gdscheck -p says (package gds-tools)"
    )
