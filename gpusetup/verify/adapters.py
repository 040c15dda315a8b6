"""RDMA adapters as the probe reports them: active ports, link rates, bridges in common with a GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpusetup.verify.expected import expectations

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

_GENERATIONS = {"2.5": "1", "5.0": "2", "8.0": "3", "16.0": "4", "32.0": "5", "64.0": "6"}
"""PCI Express generations by the rate in GT/s that the kernel shows."""
Document = dict[str, Any]


def adapters(machine: Machine) -> list[Document]:
    """Return the adapters that the probe found."""
    return list((machine.facts.get("rdma") or {}).get("hcas") or ())


def active(machine: Machine) -> list[tuple[Document, Document]]:
    """Return every active port with its adapter."""
    return [(hca, port) for hca in adapters(machine) for port in hca["ports"] if port.get("state") == "ACTIVE"]


def carries(hca: Document) -> float | None:
    """Return the current rate of an adapter's PCI Express link, Gb/s each way; None if unknown."""
    link = hca.get("link") or {}
    speed = re.match(r"[\d.]+", str(link.get("speed") or ""))
    lane = expectations().pcie_lane.get(_GENERATIONS.get(speed[0], "") if speed else "")
    return lane * link["width"] * 8 if lane and link.get("width") else None


def network(machine: Machine, gpus: int) -> tuple[float, int]:
    """Return the sum of the fastest ports' rates, GB/s each way, and their number: at most one for each GPU.

    A port counts no faster than its PCI Express link.
    """
    rates = []
    for hca, port in active(machine):
        rate, room = port.get("rate") or 0.0, carries(hca)
        rates.append(min(rate, room) if room else rate)
    taken = sorted(rates, reverse=True)[:gpus]
    return sum(taken) / 8, len(taken)


def shared(one: Document, other: Document) -> int:
    """Return how many bridges two devices have in common; with none they meet at the root."""
    above = [set((device.get("way") or {}).get("above") or ()) for device in (one, other)]
    return len(above[0] & above[1])
