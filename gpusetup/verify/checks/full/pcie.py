"""Host link bandwidth, one check for each direction.

Expected is the link's bandwidth (lanes and rate of the generation it can run at). The best node is judged;
slower ones are only shown, since they are usual between sockets. Two passes; the better one counts.

To do: see pcie.link; look at the IOMMU, at BIOS settings of the memory and at the slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify import bandwidth
from gpusetup.verify.expected import pcie
from gpusetup.verify.registry import Row, from_items, table

if TYPE_CHECKING:
    from gpusetup.verify.expected import Bound
    from gpusetup.verify.machine import Machine

LINK = "pci/pci_gpu_link_info"


def seconds(machine: Machine) -> float:
    """Return the sum over all GPUs, which are measured one after the other."""
    return sum(float(answer.get("seconds", 0)) for answer in machine.answers("pcie").values())


def bound_of(machine: Machine, key: str, figure: str) -> Bound | None:
    """Return the bound of a GPU's link to the host."""
    gpu = bandwidth.gpu_of(machine, key)
    if gpu is None:
        return None
    return pcie(
        figure, gpu.number(f"{LINK}/pcie_gen/max_link_gen"), gpu.number(f"{LINK}/link_widths/current_link_width")
    )


def judge(machine: Machine, part: str) -> Finding:
    """Judge the best NUMA node of every GPU."""
    items, slowest = bandwidth.failed(machine, "pcie"), []
    for key, answer in bandwidth.sound(machine, "pcie"):
        subject, nodes = bandwidth.label(key), answer.get("nodes", {})
        measured = {node: found for node, found in nodes.items() if "error" not in found}
        if not measured:
            items.append(Item(subject, "skip", "not run: no NUMA node's processors may be used by this process"))
            continue
        wrong = sum(found.get("wrong", 0) for found in measured.values())
        if wrong:
            items.append(Item(subject, "fail", f"{wrong} words arrived wrong"))
            continue
        best = max(measured, key=lambda node: max(measured[node][part]))
        busy = bool(machine.workers.get(key, {}).get("busy"))
        items.append(
            bandwidth.bounded(
                subject, measured[best][part], bound_of(machine, key, f"pcie.{part}"), "GB/s", gentle=busy
            )
        )
        slowest.append(max(measured[best][part]))
        if len(measured) > 1:
            items += [_node(subject, node, found[part], node == best) for node, found in measured.items()]
    nodes = max((len(answer.get("nodes", {})) for _, answer in bandwidth.sound(machine, "pcie")), default=0)
    text = f"{min(slowest, default=0):.1f} GB/s or more on every GPU" + (
        f", best of {nodes} NUMA nodes" if nodes > 1 else ""
    )
    return from_items(items, text, unit="GB/s", nothing="not run: nothing was measured")


def _node(subject: str, node: str, passes: list[float], best: bool) -> Item:
    """Return one NUMA node's figure, not judged: only the best node shows what the link can do."""
    text = f"{max(passes):.1f} GB/s" + (", the best" if best else "")
    return Item(f"{subject}, memory of node {node}", "pass", text)


table(
    judge,
    tuple(
        Row(
            f"pcie.{part}",
            f"{title} at full speed",
            f"{way}, from every NUMA node, one GPU at a time; the data is checked.",
            part,
        )
        for part, title, way in (
            ("d2h", "Device to host", "The device to pinned host memory"),
            ("h2d", "Host to device", "Pinned host memory to the device"),
        )
    ),
    needs=("gpu", "python", "context"),
    seconds=seconds,
)
