"""GPUs that are linked reach each other's memory, and what is copied arrives unchanged.

`can access peer` for every pair, beside the topology. A pair with NVLink that has no access is a fail; a pair that
meets over PCI Express may have none (consumer GPUs, some virtual machines): unsupported. Data that arrives wrong is
always a fail: an IOMMU or PCI Express ACS that redirects peer traffic does this.

To do: see pcie.peers, which reads both; in virtual machines they are the host's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Grid, Item, Verdict
from gpusetup.verify.checks.full import p2p
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("p2p.access", "Peers reach each other", needs=("gpu", "pairs"), seconds=p2p.seconds)
def judge(machine: Machine) -> Finding:
    """Judge access and data of every pair."""
    problem = p2p.problem(machine)
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
            subject, way, wrong = f"{names[i]} → {names[j]}", p2p.topology(machine, i, j), peer["wrong"][i][j]
            if wrong:
                items.append(
                    Item(
                        subject=subject, verdict="fail", text=f"{wrong} words arrived wrong", measured=wrong, expected=0
                    )
                )
            elif peer["access"][i][j]:
                items.append(Item(subject=subject, verdict="pass", text=way))
            else:
                verdict: Verdict = "fail" if way.startswith("NV") else "unsupported"
                items.append(Item(subject=subject, verdict=verdict, text=f"no peer access over {way or 'this link'}"))
    ways = sorted({item.text for item in items if item.verdict == "pass"} - {""})
    grid = Grid(title="Peer access", unit="", rows=names, columns=names, values=tuple(values), notes=machine.topology)
    finding = from_items(items, f"every pair, by {', '.join(ways) or 'PCI Express'}; data unchanged")
    return Finding(
        finding.verdict, finding.text, finding.measured, finding.expected, items=finding.items, figures=(grid,)
    )
