"""NCCL collectives, on one host and between hosts."""

from statistics import mean
from typing import Any

from gpusetup.model.verdict import Curve, Curves, Finding, Item
from gpusetup.verify.answers import bounded, crossed, explain, left_out
from gpusetup.verify.checks.full.links import bound_of
from gpusetup.verify.expected import Bound, between_hosts, collective, expectations
from gpusetup.verify.machine import Machine, network_rate
from gpusetup.verify.registry import Row, check, from_items, table

Group = dict[str, Any]


def _drawn(title: str, curves: list[Curve]) -> Curves:
    return Curves(
        title=title,
        x_label="message size",
        y_label="bus bandwidth in GB/s",
        lines=tuple(curves),
        x_log=True,
        x_bytes=True,
    )


def _rank_failures(group: Group) -> list[Item]:
    silent = {str(index): {"error": "no answer"} for index in group.get("gpus", ())}
    ranks = {**silent, **group["ranks"]}
    subject = f"{group['world']} GPUs, GPU "
    return [Item(subject + key, "fail", explain(rank)) for key, rank in ranks.items() if "error" in rank]


def _results(group: Group, name: str) -> list[tuple[int, int, list[float]]]:
    """Return, for each message size, the wrong elements of all ranks and each pass's mean bus bandwidth."""
    ranks = [rank for rank in group["ranks"].values() if "error" not in rank]
    found = []
    for number, first in enumerate(ranks[0]["results"] if ranks else []):
        if first["collective"] != name:
            continue
        same = [rank["results"][number] for rank in ranks]
        passes = [mean(values) for values in zip(*(part["bus"] for part in same), strict=True)]
        found.append((int(first["bytes"]), sum(int(part["wrong"]) for part in same), passes))
    return found


def _bound(machine: Machine, group: Group, name: str, size: int) -> tuple[Bound | None, str]:
    log = next((rank.get("log") or {} for rank in group["ranks"].values() if "error" not in rank), {})
    nvls = bool(log.get("nvls_channels"))
    algorithm = "NVLS" if nvls else "ring" if log else "an algorithm that no log names"
    bandwidths = [machine.nvlink_bandwidth(index)[1] for index in group["gpus"]]
    if min(bandwidths, default=0.0) > 0:
        return collective(name, group["world"], size, min(bandwidths), nvls=nvls, nvlink=True), algorithm
    if any(way.startswith("NV") for row in machine.topology for way in row) and not machine.nvlinks:
        return None, "links of unknown rate"
    host = bound_of(machine, str(group["gpus"][0]), "pcie.h2d")
    return (
        collective(name, group["world"], size, host.theory, nvls=False, nvlink=False) if host else None
    ), "ring over PCI Express"


def collectives(machine: Machine, part: str) -> Finding:
    """NCCL collectives over 2 to all GPUs, one check for each.

    One process per GPU without MPI; sizes and bus bandwidth are counted as nccl-tests counts them. Expected is the link
    bandwidth of one GPU times what the algorithm reaches for this number of GPUs and message size; the algorithm (NVLS
    or ring) is what NCCL says it set up. Messages of 1 GiB and more can fail, smaller ones warn. Wrong elements always
    fail.

    To do: see nvlink.links, p2p.access, fabric.state; look for NCCL_ variables that were left behind.
    """
    section = machine.sections.get("nccl")
    if not isinstance(section, dict):
        return Finding("skip", "not run: fewer than two GPUs could be opened (see cuda.context)")
    if section.get("skipped"):
        return Finding("warn", f"not measured: {section['skipped']}", blame="job")
    took_part = {str(index) for group in section.get("groups", []) for index in group.get("gpus", ())}
    items = left_out(machine, took_part | {key for key in machine.workers if "/" in key}) if took_part else []
    curves: list[Curve] = []
    best = None
    for group in section.get("groups", []):
        items += _rank_failures(group)
        points, guide = [], []
        for size, wrong, passes in _results(group, part):
            subject = f"{group['world']} GPUs, {_bytes(size)}"
            bound, algorithm = _bound(machine, group, part, size)
            if wrong:
                items.append(Item(subject, "fail", f"{wrong} elements have wrong values"))
                continue
            large = size >= expectations().nccl.judged_from * 0.99
            may_fail = large and "PCI" not in algorithm
            items.append(bounded(subject, passes, bound, "GB/s", gentle=bool(machine.busy), may_fail=may_fail))
            points.append((float(size), round(max(passes), 2)))
            if bound is not None:
                guide.append((float(size), bound.expected))
            best = (group["world"], size, max(passes), algorithm)
        if points:
            curves.append(Curve(name=f"{group['world']} GPUs", points=tuple(points)))
        if guide and group["world"] == max(found["world"] for found in section["groups"]):
            curves.append(Curve(name=f"expected, {group['world']} GPUs", points=tuple(guide), expected=True))
    title = part.replace("_", "-")
    figure = _drawn(f"NCCL {title}", curves)
    text = f"{best[2]:.0f} GB/s over {best[0]} GPUs at {_bytes(best[1])} ({best[3]}), results correct" if best else ""
    finding = from_items(items, text, unit="GB/s", nothing="not run: nothing was measured")
    measured, expected, limit = finding.measured, finding.expected, finding.limit
    if finding.verdict == "pass" and best is not None:  # show the largest message of the largest group
        last = next(item for item in reversed(items) if item.verdict == "pass")
        measured, expected, limit = last.measured, last.expected, last.limit
    if isinstance(measured, float):
        measured = round(measured, 2)
    return Finding(
        finding.verdict, finding.text, measured, expected, limit, "GB/s", tuple(items), (figure,) if curves else ()
    )


def _bytes(size: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= scale * 0.99:
            return f"{size / scale:.3g} {unit}"
    return f"{size} B"


table(
    collectives,
    tuple(
        Row(
            f"nccl.{name}",
            f"NCCL {name} at full speed",
            f"NCCL {name} over 2 to all GPUs, messages of 1 MiB to 4 GiB: "
            "bus bandwidth, and every element of every result.",
            name.replace("-", "_"),
        )
        for name in ("all-gather", "all-reduce", "reduce-scatter")
    ),
    needs=("gpu", "pairs"),
    took="nccl/groups/+/ranks/*",
)


def _adapters(machine: Machine, network: str | None, points: tuple[tuple[float, float], ...]) -> list[Item]:
    """Judge the largest all-reduce by the rates of this host's adapters; empty without RDMA adapters."""
    carried, ports = network_rate(machine, len(machine.sections["hosts"].get("gpus") or ()))
    bound = between_hosts(carried)
    if bound is None:
        return []
    if network == "Socket":
        text = f"NCCL goes over sockets beside {ports} ports with RDMA: NCCL_DEBUG=INFO says why NET/IB was not taken"
        return [Item("network", "warn", text, network, "IB")]
    figure = points[-1][1]
    verdict, limit = crossed(figure, bound)
    text = f"{figure:g} GB/s, and {ports} ports carry {bound.theory:g}"
    return [Item("links", verdict, text, figure, bound.expected, limit)]


@check("nccl.hosts", "NCCL between hosts", needs=("gpu",), took="hosts/ranks/*")
def nccl_hosts(machine: Machine) -> Finding:
    """NCCL over several hosts: all-reduce, all-gather and reduce-scatter through the network, results checked.

    Runs when the inventory has two GPU hosts or more: each host's launcher starts one process per GPU, the first host
    hands NCCL's id to the others (they prove a token of this run), no MPI is needed. The check judges the results, and
    whether the hosts find each other. Where a host has RDMA adapters, it judges the bandwidth by the rates of their
    ports: NCCL over sockets is a warning there, and less than the links carry a warning or a fail. Over any other
    network the bandwidth is reported and compared with the baseline only.

    To do: NCCL_SOCKET_IFNAME names the network; open the ports between the hosts; see the other hosts' reports.
    """
    section = machine.sections.get("hosts")
    if not isinstance(section, dict):
        if machine.wanted.hosts > 1:
            return Finding("skip", "not run: fewer than two of the hosts have a GPU that could be opened")
        return Finding("skip", "only one GPU host: nothing to measure between hosts")
    if section.get("broken"):
        return Finding("skip", f"not measured: it failed on {', '.join(section['broken'][:4])}")
    if "error" in section:
        return Finding("fail", explain(section))
    items, curves, best = _rank_failures(section), [], ""
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        points = []
        for size, wrong, passes in _results(section, name):
            subject = f"{name.replace('_', '-')}, {size / 2**20:.0f} MiB"
            text = f"{wrong} elements have wrong values" if wrong else f"{max(passes):.1f} GB/s"
            items.append(Item(subject, "fail" if wrong else "pass", text, round(max(passes), 2)))
            points.append((float(size), round(max(passes), 2)))
        if points:
            curves.append(Curve(name=name.replace("_", "-"), points=tuple(points)))
            best = best or f"all-reduce {points[-1][1]:.1f} GB/s"
    network = next(
        ((rank.get("log") or {}).get("network") for rank in section["ranks"].values() if "error" not in rank), None
    )
    figure = _drawn("NCCL between hosts", curves)
    if best:
        items += _adapters(machine, network, curves[0].points)
    return from_items(
        items,
        f"{section['world']} GPUs over {network or 'the network'}: {best}, results correct",
        unit="GB/s",
        nothing="not run: nothing was measured",
        figures=(figure,) if curves else (),
    )
