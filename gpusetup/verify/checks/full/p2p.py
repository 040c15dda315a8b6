"""The peer-to-peer matrix, one check for each direction of use.

Expected is the sum of the NVLinks' rates between the two; over PCI Express it is the link's bandwidth, and low
figures are a warning only, since sockets and switches between decide. One pair at a time; two passes, the better
one counts.

To do: see nvlink.links and p2p.access; compare the row and the column of the GPU that is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Grid
from gpusetup.verify.checks.full import pcie
from gpusetup.verify.expected import link
from gpusetup.verify.figures import bounded
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import Row, from_items, table

if TYPE_CHECKING:
    from gpusetup.verify.expected import Bound
    from gpusetup.verify.machine import Machine

__all__ = ["judge", "problem", "seconds", "topology"]


def seconds(machine: Machine) -> float:
    """All is measured in one go."""
    return float((machine.sections.get("peer") or {}).get("seconds", 0))


def problem(machine: Machine) -> Finding | None:
    """Return the finding when nothing was measured."""
    peer = machine.sections.get("peer")
    if not isinstance(peer, dict):
        return Finding("skip", "not run: fewer than two GPUs could be opened (see cuda.context)")
    return Finding("fail", explain(peer)) if "error" in peer else None


def topology(machine: Machine, i: int, j: int) -> str:
    """Return how nvidia-smi names the way between two GPUs."""
    table = machine.topology
    gpus: list[int] = machine.sections["peer"]["gpus"]
    try:
        return table[gpus[i]][gpus[j]]
    except IndexError:
        return ""


def _bound(machine: Machine, i: int, j: int, figure: str) -> tuple[Bound | None, bool]:
    """Return what the way between two GPUs can do, and whether it is NVLink."""
    gpus = machine.sections["peer"]["gpus"]
    if topology(machine, i, j).startswith("NV"):
        ends = [machine.nvlink_bandwidth(gpus[end]) for end in (i, j)]
        links, bandwidth = min(ends)
        if links:
            return link(figure, bandwidth, round(bandwidth / links, 3)), True
    return pcie.bound_of(machine, str(gpus[i]), "p2p.pcie"), False


def judge(machine: Machine, part: str) -> Finding:
    """Judge one kind of copy over every pair: `write`, `read` or `both`."""
    missing = problem(machine)
    if missing is not None:
        return missing
    peer = machine.sections["peer"]
    names = tuple(f"GPU {index}" for index in peer["gpus"])
    gentle = any(index in machine.busy for index in peer["gpus"])
    items, values, bounds = [], [], []
    for i in range(len(names)):
        row: list[float | None] = []
        for j in range(len(names)):
            passes = peer[part][i][j]
            row.append(max(passes) if passes else None)
            if passes and (part != "both" or i < j):
                arrow = "↔" if part == "both" else "→" if part == "write" else "←"
                bound, nvlink = _bound(machine, i, j, f"p2p.{part}")
                bounds.append(bound)
                items.append(
                    bounded(f"{names[i]} {arrow} {names[j]}", passes, bound, "GB/s", gentle=gentle, may_fail=nvlink)
                )
        values.append(tuple(row))
    measured = [float(value) for row in values for value in row if value is not None]
    first = next((bound for bound in bounds if bound is not None), None)
    titles = {"write": "Peer write", "read": "Peer read", "both": "Peer copies, both ways at once"}
    grid = Grid(
        title=titles[part],
        unit="GB/s",
        rows=names,
        columns=names,
        values=tuple(values),
        notes=tuple(tuple(topology(machine, i, j) for j in range(len(names))) for i in range(len(names))),
        expected=first.expected if first else None,
        limit=first.fail if first else None,
    )
    text = f"{min(measured, default=0):.1f} to {max(measured, default=0):.1f} GB/s over {len(items)} pairs"
    finding = from_items(items, text, unit="GB/s")
    return Finding(
        finding.verdict, finding.text, finding.measured, finding.expected, finding.limit, "GB/s", finding.items, (grid,)
    )


table(
    judge,
    tuple(
        Row(f"p2p.{part}", f"Peer{title}", f"The peer-to-peer matrix, {says} of GPUs.", part)
        for part, title, says in (
            ("both", "s at full speed both ways", "written in both directions at once: the sum of the two, every pair"),
            ("read", " reads at full speed", "read by the destination's copy engine: every ordered pair"),
            ("write", " writes at full speed", "written by the source's copy engine: every ordered pair"),
        )
    ),
    needs=("gpu", "pairs"),
    seconds=seconds,
)
