"""The rates of links: from GPUs to the host, from GPU to GPU, and of RDMA adapters."""

from typing import Any

from msgspec import structs

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Grid, Item, Verdict
from gpusetup.verify import answers
from gpusetup.verify.answers import crossed, failed_item
from gpusetup.verify.checks.quick.rdma import grave
from gpusetup.verify.expected import Bound, adapter, link, pcie
from gpusetup.verify.machine import Machine, active_ports, link_rate
from gpusetup.verify.registry import Row, check, from_items, table

LINK = "pci/pci_gpu_link_info"


def bound_of(machine: Machine, key: str, figure: str) -> Bound | None:
    """Return the bound of a GPU's link to the host."""
    gpu = answers.gpu_of(machine, key)
    if gpu is None:
        return None
    return pcie(
        figure, gpu.number(f"{LINK}/pcie_gen/max_link_gen"), gpu.number(f"{LINK}/link_widths/current_link_width")
    )


def host_link(machine: Machine, part: str) -> Finding:
    """Host link bandwidth, one check for each direction.

    Expected is the link's bandwidth (lanes and rate of the generation it can run at). The best node is judged;
    slower ones are only shown, since they are usual between sockets. Two passes; the better one counts.

    To do: see pcie.link; look at the IOMMU, at BIOS settings of the memory and at the slot.
    """
    items, slowest = answers.failed(machine, "pcie"), []
    for key, answer in answers.sound(machine, "pcie"):
        subject, nodes = answers.label(key), answer.get("nodes", {})
        measured = {node: found for node, found in nodes.items() if "error" not in found}
        if not measured:
            items.append(Item(subject, "skip", "not run: no NUMA node's processors may be used by this process"))
            continue
        wrong = sum(found.get("wrong", 0) for found in measured.values())
        if wrong:
            items.append(Item(subject, "fail", f"{wrong} words arrived wrong"))
            continue
        best = max(measured, key=lambda node: max(measured[node][part]))
        busy = machine.beside_job(key)
        items.append(
            answers.bounded(subject, measured[best][part], bound_of(machine, key, f"pcie.{part}"), "GB/s", gentle=busy)
        )
        slowest.append(max(measured[best][part]))
        if len(measured) > 1:
            items += [_node(subject, node, found[part], node == best) for node, found in measured.items()]
    nodes = max((len(answer.get("nodes", {})) for _, answer in answers.sound(machine, "pcie")), default=0)
    text = f"{min(slowest, default=0):.1f} GB/s or more on every GPU" + (
        f", best of {nodes} NUMA nodes" if nodes > 1 else ""
    )
    return from_items(items, text, unit="GB/s", nothing="not run: nothing was measured")


def _node(subject: str, node: str, passes: list[float], best: bool) -> Item:
    """Return one NUMA node's figure, not judged: only the best node shows what the link can do."""
    text = f"{max(passes):.1f} GB/s" + (", the best" if best else "")
    return Item(f"{subject}, memory of node {node}", "pass", text)


table(
    host_link,
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
    took="pcie/+",
)


def _unmeasured(machine: Machine) -> Finding | None:
    peer = machine.sections.get("peer")
    if not isinstance(peer, dict):
        return Finding("skip", "not run: fewer than two GPUs could be opened (see cuda.context)")
    if "error" not in peer:
        return None
    item = failed_item("peers", peer, busy=bool(machine.busy))
    return Finding("fail", item.text, blame=item.blame)


def _left_out(machine: Machine) -> list[Item]:
    slices = {key for key in machine.workers if "/" in key}
    return answers.left_out(machine, slices | {str(index) for index in machine.sections["peer"]["gpus"]})


def _topology(machine: Machine, i: int, j: int) -> str:
    table = machine.topology
    gpus: list[int] = machine.sections["peer"]["gpus"]
    try:
        return table[gpus[i]][gpus[j]]
    except IndexError:
        return ""


def _bound(machine: Machine, i: int, j: int, figure: str) -> tuple[Bound | None, bool]:
    """Return the bound of the link between two GPUs, and whether it is NVLink."""
    gpus = machine.sections["peer"]["gpus"]
    way = _topology(machine, i, j)
    if way.startswith("NV"):
        ends = [machine.nvlink_bandwidth(gpus[end]) for end in (i, j)]
        links, total = min(ends)
        return link(figure, total, round(total / links, 3)) if links else None, True
    return bound_of(machine, str(gpus[i]), "p2p.pcie") if way else None, False


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
    items, values, bounds = _left_out(machine), [], []
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
                    answers.bounded(
                        f"{names[i]} {arrow} {names[j]}", passes, bound, "GB/s", gentle=gentle, may_fail=nvlink
                    )
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
    text = f"{min(measured, default=0):.1f} to {max(measured, default=0):.1f} GB/s over {counted(len(bounds), 'pair')}"
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
    took="peer",
)


@check("p2p.access", "Peers reach each other", needs=("gpu", "pairs"), took="peer")
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
    items, names, values = _left_out(machine), tuple(f"GPU {index}" for index in peer["gpus"]), []
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
                linked = way.startswith("NV") or (not way and machine.nvlink_bandwidth(peer["gpus"][i])[0])
                verdict: Verdict = "fail" if linked else "unsupported"
                items.append(Item(subject, verdict, f"no peer access over {way or 'this link'}"))
    ways = sorted({item.text for item in items if item.verdict == "pass"} - {""})
    grid = Grid(title="Peer access", unit="", rows=names, columns=names, values=tuple(values), notes=machine.topology)
    return from_items(
        items,
        f"every pair, by {', '.join(ways) or 'links that nvidia-smi did not name'}; data unchanged",
        figures=(grid,),
    )


@check(
    "rdma.bandwidth",
    "RDMA adapters write at full rate",
    needs=("gpu",),
    applies=lambda machine: bool(active_ports(machine)),
)
def rdma_bandwidth(machine: Machine) -> Finding:
    """Each RDMA adapter writes at the rate of its link, from the host's memory and from the nearest GPU's.

    `ib_write_bw` against itself on the same adapter: what is measured is the adapter, its PCI Express link and the way
    to memory. Expected is what the port and the PCI Express link carry, the lesser of the two. Much less from GPU
    memory than from the host's is ACS, an IOMMU, or a GPU on another switch (see pcie.peers). A perftest without CUDA
    measures the host's memory alone: a warning.

    To do: `gpusetup_rdma` installs perftest; one with CUDA is built by `./configure CUDA_H_PATH=…/cuda.h && make`, with
    `--use_cuda=0 --use_cuda_dmabuf`.
    """
    section = machine.sections.get("rdma")
    if not isinstance(section, dict):
        return Finding("skip", "not run")
    if section.get("error") == "missing":
        return Finding("skip", "ib_write_bw is not installed (gpusetup_rdma brings perftest)")
    if "error" in section:
        return Finding("fail", f"not measured: {answers.explain(section)}", blame="gpusetup")
    ports = {(hca["name"], port["number"]): (hca, port) for hca, port in active_ports(machine)}
    items = [
        _beside_job(machine, _adapter(machine, found, kind, ports[found["name"], found["port"]]))
        for found in section.get("adapters") or ()
        if (found["name"], found["port"]) in ports
        for kind in found["runs"]
    ]
    without = "" if section.get("cuda") else "; not from GPU memory: this perftest is built without CUDA"
    rates = [item.measured for item in items if isinstance(item.measured, float)]
    finding = from_items(items, f"{min(rates, default=0):g} Gb/s and more{without}", unit="Gb/s")
    if without and finding.verdict == "pass":
        return Finding("warn", finding.text, finding.measured, finding.expected, finding.limit, "Gb/s", finding.items)
    return finding


def _beside_job(machine: Machine, item: Item) -> Item:
    """Blame a failure or a low figure on a running job, if there is one: it may use the adapter, too."""
    return structs.replace(item, blame="job") if machine.busy and item.verdict in ("fail", "warn") else item


def _adapter(machine: Machine, found: dict[str, Any], kind: str, at: tuple[dict[str, Any], dict[str, Any]]) -> Item:
    (hca, port), run = at, found["runs"][kind]
    subject = found["name"] if kind == "host" else f"{found['name']} ← GPU {found['gpu']}"
    if run["gbits"] is None:
        return Item(subject, grave(machine), f"ib_write_bw failed: {run['error']}")
    bound = adapter(port.get("rate"), link_rate(hca))
    if bound is None:
        return Item(subject, "skip", "its rate is not known", run["gbits"])
    verdict, limit = crossed(run["gbits"], bound)
    text = "" if verdict == "pass" else f"{run['gbits']:g} Gb/s of {bound.theory:g}"
    return Item(subject, verdict, text, run["gbits"], bound.expected, limit)
