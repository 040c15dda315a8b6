"""GPUDirect Storage reads files directly into GPU memory in the chosen mode, not in compatibility mode.

cuFile falls back to copying through the host's memory (compat) without an error, and every functional test passes with
it. So the check judges the mode that the toolkit's `gdscheck -p` prints for NVMe: p2pdma or nvfs (`Supported` in older
releases). Without gdscheck it judges the parts: the module, the options of the loaded modules, cufile.json.

To do: `gdscheck -p`; `gpusetup_gds` and `gpusetup apply`, which reboots for P2PDMA; docs/guides/rdma.md has what each
needs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.components.judge import gpudirect
from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check, took

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

_MODES = {"p2pdma": "p2pdma", "c2c": "p2pdma", "nvfs": "nvidia-fs", "compat": "compat"}


def _asked(machine: Machine) -> bool:
    wish = machine.wanted.gpudirect
    return wish is not None and wish.storage != "none"


@check(
    "gds.mode", "Files come straight into GPU memory", needs=("gpu",), applies=_asked,
    seconds=took("gdscheck"),
)  # fmt: skip
def judge(machine: Machine) -> Finding:
    """Judge the mode of local NVMe drives."""
    wish = machine.wanted.gpudirect
    wanted = wish.storage if wish is not None else "none"
    told = machine.command("gdscheck").get("stdout", "")
    modes = modes_of(told)
    if modes is None:
        return _by_parts(machine, wanted)
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


def _by_parts(machine: Machine, wanted: str) -> Finding:
    storage = machine.facts.get("storage")
    if wanted == "nvidia-fs":
        if "nvidia_fs" not in (machine.facts.get("modules") or ()):
            return Finding("fail", "nvidia_fs is not loaded: modprobe nvidia_fs, and dmesg says why not")
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
