"""What Slurm is to know of hosts with GPUs: gres.conf, lines of slurm.conf, and a slurmd that waits for its GPUs."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpusetup.model.facts import HostFacts

_MADE = "# Written by `gpusetup export handover slurm`: run that again rather than editing this.\n"
_WAIT = r"""#!/bin/sh
# Written by `gpusetup export handover slurm`.
# Waits until each NVIDIA GPU of this host has its device file, at most SECONDS.
# usage: gpusetup-wait-for-gpus [SECONDS [ROOT]]
# slurmd counts GPUs when it starts and drains the node if one is missing. It starts in any case: Slurm says why.
root=${2:-}
wanted=0
for device in "$root"/sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
    case "$(cat "$device/class")" in 0x0300*|0x0302*) wanted=$((wanted + 1)) ;; esac
done
left=$((${1:-120} * 2))
while :; do
    there=0
    for file in "$root"/dev/nvidia[0-9]*; do [ -e "$file" ] && there=$((there + 1)); done
    [ "$there" -ge "$wanted" ] && exit 0
    # Without a display server or a persistence daemon nobody made them.
    [ -n "$root" ] || ! command -v nvidia-smi >/dev/null || timeout 20 nvidia-smi -L >/dev/null 2>&1
    left=$((left - 1))
    [ "$left" -gt 0 ] || break
    sleep 0.5
done
echo "$there of $wanted GPUs have a device file; slurmd starts without the others" >&2
"""
_DROP_IN = (
    _MADE
    + """[Unit]
Wants=nvidia-persistenced.service
After=nvidia-persistenced.service

[Service]
ExecStartPre=/usr/local/sbin/gpusetup-wait-for-gpus 120
TimeoutStartSec=300
"""
)
_PAGE = """# Hand-over to Slurm

On each node with GPUs, as root:

```bash
install -m 0755 gpusetup-wait-for-gpus /usr/local/sbin/
install -D -m 0644 slurmd-gpus.conf /etc/systemd/system/slurmd.service.d/gpusetup.conf
systemctl daemon-reload
```

`gres.conf` goes beside `slurm.conf`, the same on all nodes; its lines for other hosts stay. The lines of
`slurm.conf.example` go into `slurm.conf`: `Gres=` belongs to the `NodeName` line that the node has there already.
Then run `scontrol reconfigure` and restart slurmd.

A node that goes bad: `gpusetup fleet health --hooks slurm` on the node writes the health program, the
prolog and the epilog, with the lines for them.
Changes of drivers: `gpusetup apply inventory.ini --engine slurm`.
"""


def slurm_files(hosts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Return what is written, by name; the hosts' names are those of their nodes."""
    nodes = {name: _types(facts) for name, facts in hosts.items() if _countable(facts)}
    return {
        "gres.conf": _MADE + "".join(f"{line}\n" for line in _gres(nodes)),
        "slurm.conf.example": _conf(nodes),
        "slurmd-gpus.conf": _DROP_IN,
        "gpusetup-wait-for-gpus": _WAIT,
        "README.md": _PAGE,
    }


def slurm_warnings(hosts: Mapping[str, HostFacts]) -> tuple[str, ...]:
    """Return what a person has to look at."""
    found = []
    for name, facts in sorted(hosts.items()):
        if not facts.gpus:
            found.append(f"{name}: no NVIDIA GPU")
        elif not _countable(facts):
            found.append(f"{name}: MIG is on; write AutoDetect=nvml for it, which knows the slices' device files")
        elif facts.driver is None or facts.driver.loaded is None:
            found.append(
                f"{name}: no driver is loaded; its device files are named as one driver for all GPUs makes them"
            )
    return tuple(found)


def _countable(facts: HostFacts) -> bool:
    return bool(facts.gpus) and not any(gpu.mig == "Enabled" for gpu in facts.gpus)


def _types(facts: HostFacts) -> tuple[str, ...]:
    """Return the kind of each GPU in the order of their device files, in one word as Slurm's AutoDetect writes it."""
    names = (gpu.reported_name or gpu.name or gpu.pci_id for gpu in facts.gpus)
    return tuple(re.sub(r"[^a-z0-9.-]+", "_", name.lower()).strip("_") for name in names)


def _runs(types: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    """Return neighbours of one kind: the kind, the first and the last."""
    for kind, group in groupby(enumerate(types), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        yield kind, numbers[0], numbers[-1]


def _alike(nodes: Mapping[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return hosts with the same GPUs together, as Slurm lists nodes."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, types in sorted(nodes.items()):
        alike.setdefault(types, []).append(name)
    return [(",".join(names), types) for types, names in alike.items()]


def _gres(nodes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for names, types in _alike(nodes):
        for kind, first, last in _runs(types):
            numbers = f"{first}" if first == last else f"[{first}-{last}]"
            yield f"NodeName={names} Name=gpu Type={kind} File=/dev/nvidia{numbers}"


def _conf(nodes: Mapping[str, tuple[str, ...]]) -> str:
    lines = [
        f"# NodeName={names} Gres=" + ",".join(f"gpu:{kind}:{types.count(kind)}" for kind in dict.fromkeys(types))
        for names, types in _alike(nodes)
    ]
    return _MADE + "\n".join(
        [
            "GresTypes=gpu",
            "# For `scontrol reboot` and `gpusetup apply --engine slurm`; how many seconds a boot may take.",
            "RebootProgram=/sbin/reboot",
            "ResumeTimeout=900",
            "# To be added to the line that each node has already:",
            *lines,
            "",
        ]
    )
