"""Each RDMA adapter writes at the rate of its link, from the host's memory and from the nearest GPU's.

`ib_write_bw` against itself on the same adapter: what is measured is the adapter, its PCI Express link and the way to
memory. Expected is what the port and the PCI Express link carry, the lesser of the two. Much less from GPU memory than
from the host's is ACS, an IOMMU, or a GPU on another switch (see pcie.peers). A perftest without CUDA measures the
host's memory alone: a warning.

To do: `gpusetup_rdma` installs perftest; one with CUDA is built by `./configure CUDA_H_PATH=…/cuda.h && make`, with
`--use_cuda=0 --use_cuda_dmabuf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.adapters import active, carries
from gpusetup.verify.checks.quick.rdma import grave
from gpusetup.verify.expected import adapter
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Verdict
    from gpusetup.verify.machine import Machine


@check(
    "rdma.bandwidth", "RDMA adapters write at full rate", needs=("gpu",), applies=lambda machine: bool(active(machine))
)
def judge(machine: Machine) -> Finding:
    """Judge the write bandwidth of every adapter."""
    section = machine.sections.get("rdma")
    if not isinstance(section, dict):
        return Finding("skip", "not run")
    if section.get("error"):
        return Finding("skip", "ib_write_bw is not installed (gpusetup_rdma brings perftest)")
    ports = {(hca["name"], port["number"]): (hca, port) for hca, port in active(machine)}
    items = [
        _beside(machine, _one(machine, found, kind, ports[found["name"], found["port"]]))
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


def _beside(machine: Machine, item: Item) -> Item:
    """Blame a failure or a low figure on a running job, if there is one: it may use the adapter, too."""
    return structs.replace(item, blame="job") if machine.busy and item.verdict in ("fail", "warn") else item


def _one(machine: Machine, found: dict[str, Any], kind: str, at: tuple[dict[str, Any], dict[str, Any]]) -> Item:
    (hca, port), run = at, found["runs"][kind]
    subject = found["name"] if kind == "host" else f"{found['name']} ← GPU {found['gpu']}"
    if run["gbits"] is None:
        return Item(subject, grave(machine), f"ib_write_bw failed: {run['error']}")
    bound = adapter(port.get("rate"), carries(hca))
    if bound is None:
        return Item(subject, "pass", "its rate is not known", run["gbits"])
    verdict: Verdict = "fail" if run["gbits"] < bound.fail else "warn" if run["gbits"] < bound.warn else "pass"
    text = "" if verdict == "pass" else f"{run['gbits']:g} Gb/s of {bound.theory:g}"
    return Item(subject, verdict, text, run["gbits"], bound.expected, bound.warn)
