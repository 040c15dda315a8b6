"""NCCL over several hosts: all-reduce, all-gather and reduce-scatter through the network, results checked.

Runs when the inventory has two GPU hosts or more: each host's launcher starts one process per GPU, the first host
hands NCCL's id to the others (they prove a token of this run), no MPI is needed. Judged are the results and that
the hosts find each other. Where a host has adapters with RDMA, the bandwidth is judged too, by the rates of their
ports: NCCL over sockets beside such adapters is a warning, and so is much less than the links carry. Over any other
network the bandwidth is reported and compared with the baseline only.

To do: NCCL_SOCKET_IFNAME names the network; open the ports between the hosts; see the other hosts' reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Curve, Curves, Finding, Item
from gpusetup.verify.adapters import network as links
from gpusetup.verify.checks.full import nccl
from gpusetup.verify.expected import between_hosts
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Verdict
    from gpusetup.verify.machine import Machine


def _judged(machine: Machine, network: str | None, points: tuple[tuple[float, float], ...]) -> list[Item]:
    """Return what this host's adapters say of the largest all-reduce; nothing where it has none."""
    carried, ports = links(machine, len(machine.sections["hosts"].get("gpus") or ()))
    bound = between_hosts(carried)
    if bound is None:
        return []
    if network == "Socket":
        text = f"NCCL goes over sockets beside {ports} ports with RDMA: NCCL_DEBUG=INFO says why NET/IB was not taken"
        return [Item(subject="network", verdict="warn", text=text, measured=network, expected="IB")]
    figure = points[-1][1]
    verdict: Verdict = "fail" if figure < bound.fail else "warn" if figure < bound.warn else "pass"
    text = f"{figure:g} GB/s, and {ports} ports carry {bound.theory:g}"
    return [
        Item(subject="links", verdict=verdict, text=text, measured=figure, expected=bound.expected, limit=bound.warn)
    ]


def _seconds(machine: Machine) -> float:
    ranks = (machine.sections.get("hosts") or {}).get("ranks", {})
    return max((float(rank.get("seconds", 0)) for rank in ranks.values()), default=0.0)


@check("nccl.hosts", "NCCL between hosts", needs=("gpu",), seconds=_seconds)
def judge(machine: Machine) -> Finding:
    """Judge what this host's ranks measured together with the other hosts."""
    section = machine.sections.get("hosts")
    if not isinstance(section, dict):
        if machine.wanted.hosts > 1:
            return Finding("skip", "not run: fewer than two of the hosts have a GPU that could be opened")
        return Finding("skip", "only one GPU host: nothing to measure between hosts")
    if "error" in section:
        return Finding("fail", explain(section))
    items, curves, best = nccl.rank_failures(section), [], ""
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        points = []
        for size, wrong, passes in nccl.results(section, name):
            subject = f"{name.replace('_', '-')}, {size / 2**20:.0f} MiB"
            items.append(
                Item(
                    subject=subject,
                    verdict="fail" if wrong else "pass",
                    text=f"{wrong} elements have wrong values" if wrong else f"{max(passes):.1f} GB/s",
                    measured=round(max(passes), 2),
                )
            )
            points.append((float(size), round(max(passes), 2)))
        if points:
            curves.append(Curve(name=name.replace("_", "-"), points=tuple(points)))
            best = best or f"all-reduce {points[-1][1]:.1f} GB/s"
    network = next(
        ((rank.get("log") or {}).get("network") for rank in section["ranks"].values() if "error" not in rank), None
    )
    figure = Curves(
        title="NCCL between hosts",
        x_label="message size",
        y_label="bus bandwidth in GB/s",
        lines=tuple(curves),
        x_log=True,
        x_bytes=True,
    )
    if best:
        items += _judged(machine, network, curves[0].points)
    finding = from_items(
        items,
        f"{section['world']} GPUs over {network or 'the network'}: {best}, results correct",
        unit="GB/s",
        nothing="not run: nothing was measured",
    )
    return Finding(
        finding.verdict,
        finding.text,
        finding.measured,
        unit="GB/s",
        items=finding.items,
        figures=(figure,) if curves else (),
    )
