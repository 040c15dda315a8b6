"""Peer to peer: GPUs reach each other's memory, at full speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Grid, Item, Verdict
from gpusetup.verify.bandwidth import bounded
from gpusetup.verify.checks.full import pcie
from gpusetup.verify.expected import link
from gpusetup.verify.reasons import failed_item
from gpusetup.verify.registry import Row, check, from_items, table, took_section

if TYPE_CHECKING:
    from gpusetup.verify.expected import Bound
    from gpusetup.verify.machine import Machine


def _unmeasured(machine: Machine) -> Finding | None:
    """Return the finding if nothing was measured."""
    peer = machine.sections.get("peer")
    if not isinstance(peer, dict):
        return Finding("skip", "not run: fewer than two GPUs could be opened (see cuda.context)")
    if "error" not in peer:
        return None
    item = failed_item("peers", peer, busy=bool(machine.busy))
    return Finding("fail", item.text, blame=item.blame)


def _topology(machine: Machine, i: int, j: int) -> str:
    """Return nvidia-smi's name of the link between two GPUs."""
    table = machine.topology
    gpus: list[int] = machine.sections["peer"]["gpus"]
    try:
        return table[gpus[i]][gpus[j]]
    except IndexError:
        return ""


def _bound(machine: Machine, i: int, j: int, figure: str) -> tuple[Bound | None, bool]:
    """Return the bound of the link between two GPUs, and whether it is NVLink."""
    gpus = machine.sections["peer"]["gpus"]
    if _topology(machine, i, j).startswith("NV"):
        ends = [machine.nvlink_bandwidth(gpus[end]) for end in (i, j)]
        links, bandwidth = min(ends)
        if links:
            return link(figure, bandwidth, round(bandwidth / links, 3)), True
    return pcie.bound_of(machine, str(gpus[i]), "p2p.pcie"), False


def copies(machine: Machine, part: str) -> Finding:
    """The peer-to-peer matrix, one check for each direction of use.

    Expected is the sum of the NVLinks' rates between the two; over PCI Express it is the link's bandwidth, and low
    figures are a warning only, since sockets and switches between decide. One pair at a time; two passes, the better
    one counts.

    To do: see nvlink.links and p2p.access; compare the row and the column of the GPU that is slow.
    """
    missing = _unmeasured(machine)
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
        notes=tuple(tuple(_topology(machine, i, j) for j in range(len(names))) for i in range(len(names))),
        expected=first.expected if first else None,
        limit=first.fail if first else None,
    )
    text = f"{min(measured, default=0):.1f} to {max(measured, default=0):.1f} GB/s over {counted(len(items), 'pair')}"
    return from_items(items, text, unit="GB/s", figures=(grid,))


table(
    copies,
    tuple(
        Row(f"p2p.{part}", f"Peer{title}", f"The peer-to-peer matrix, {says} of GPUs.", part)
        for part, title, says in (
            ("both", "s at full speed both ways", "written in both directions at once: the sum of the two, every pair"),
            ("read", " reads at full speed", "read by the destination's copy engine: every ordered pair"),
            ("write", " writes at full speed", "written by the source's copy engine: every ordered pair"),
        )
    ),
    needs=("gpu", "pairs"),
    seconds=took_section("peer"),
)


@check("p2p.access", "Peers reach each other", needs=("gpu", "pairs"), seconds=took_section("peer"))
def p2p_access(machine: Machine) -> Finding:
    """GPUs that are linked reach each other's memory, and what is copied arrives unchanged.

    CUDA's `can access peer` of every pair, with the topology. A pair with NVLink but no access is a fail; a pair on
    PCI Express may have none (consumer GPUs, some virtual machines): unsupported. Data that arrives wrong is always a
    fail: an IOMMU or PCI Express ACS that redirects peer traffic does this.

    To do: see pcie.peers, which reads both; in virtual machines only the host can change them.
    """
    problem = _unmeasured(machine)
    if problem is not None:
        return problem
    peer = machine.sections["peer"]
    items, names, values = [], tuple(f"GPU {index}" for index in peer["gpus"]), []
    for i in range(len(names)):
        values.append(
            tuple(None if peer["access"][i][j] is None else float(peer["access"][i][j]) for j in range(len(names)))
        )
        for j in range(len(names)):
            if i == j:
                continue
            subject, way, wrong = f"{names[i]} → {names[j]}", _topology(machine, i, j), peer["wrong"][i][j]
            if wrong:
                items.append(Item(subject, "fail", f"{wrong} words arrived wrong", wrong, 0))
            elif peer["access"][i][j]:
                items.append(Item(subject, "pass", way))
            else:
                verdict: Verdict = "fail" if way.startswith("NV") else "unsupported"
                items.append(Item(subject, verdict, f"no peer access over {way or 'this link'}"))
    ways = sorted({item.text for item in items if item.verdict == "pass"} - {""})
    grid = Grid(title="Peer access", unit="", rows=names, columns=names, values=tuple(values), notes=machine.topology)
    return from_items(items, f"every pair, by {', '.join(ways) or 'PCI Express'}; data unchanged", figures=(grid,))
