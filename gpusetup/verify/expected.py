"""Expected figures: the theory follows from the machine's parts, usual values and floors are fractions of it."""

import itertools
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpusetup.errors import GpuSetupError
from gpusetup.matrix.gpus import GpuKind, find_gpu, instances, plain_type
from gpusetup.matrix.load import matrix
from gpusetup.recovery.table import Source


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A threshold that is not a fraction of a theory."""

    value: float
    text: str
    sources: tuple[str, ...]


class Fractions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fractions of the theory: the usual value, and the floors of warning and fail."""

    typical: float
    warn: float
    fail: float


class FigureRule(Fractions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one figure is judged."""

    unit: str
    theory: str
    sources: tuple[str, ...]
    wide: Fractions | None = None
    by_generation: dict[str, float] = {}
    by_rate: dict[str, float] = {}


class NcclRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Collectives: fractions of the link bandwidth by algorithm, collective and number of GPUs."""

    theory: str
    warn: float
    fail: float
    judged_from: int
    ring: dict[str, dict[str, float]]
    nvls: dict[str, dict[str, float]]
    pcie: Fractions
    size: dict[str, float]
    sources: tuple[str, ...]


class Expectations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    schema: str
    date: str
    sources: dict[str, Source]
    settings: dict[str, Setting]
    figures: dict[str, FigureRule]
    wide_bus_bits: int
    pcie_lane: dict[str, float]
    matrix_per_clock: dict[str, dict[str, int]]
    nvlinks: dict[str, int]
    nccl: NcclRule


@dataclass(frozen=True)
class Bound:
    """What a figure should be: theory, usual value, and the floors of warning and fail."""

    theory: float
    expected: float
    warn: float
    fail: float


@cache
def expectations() -> Expectations:
    """Load the data file."""
    return msgspec.json.decode((Path(__file__).parent / "data/expectations.json").read_bytes(), type=Expectations)


def setting(name: str) -> float:
    """Return a threshold."""
    return expectations().settings[name].value


def nvlink_of(device_id: str) -> int | None:
    """Return how many NVLinks a product has, by its PCI device id; None if unknown."""
    return expectations().nvlinks.get(device_id)


def _bound(theory: float, part: Fractions, typical: float | None = None) -> Bound:
    fractions = (1.0, typical or part.typical, part.warn, part.fail)
    return Bound(*(float(f"{theory * fraction:.4g}") for fraction in fractions))


def memory(figure: str, opened: dict[str, Any]) -> Bound | None:
    """Return the bound of device memory, from bus width and clock as the runtime reports them (double data rate)."""
    bits, clock = opened.get("memory_bus_bits"), opened.get("memory_clock_khz")
    if not bits or not clock:
        return None
    rule = expectations().figures[figure]
    part = rule.wide if rule.wide is not None and bits >= expectations().wide_bus_bits else rule
    return _bound(bits / 8 * clock * 1e3 * 2 / 1e9, part)


def pcie(figure: str, generation: float | None, width: float | None) -> Bound | None:
    """Return the bound of the host link, from its lanes and the rate of its generation."""
    lane = expectations().pcie_lane.get(f"{generation:.0f}" if generation else "")
    if lane is None or not width:
        return None
    rule = expectations().figures[figure]
    return _bound(lane * width, rule, rule.by_generation.get(f"{generation:.0f}"))


def link(figure: str, bandwidth: float, rate: float) -> Bound:
    """Return the bound of peer copies over NVLink: the sum of the links' rates, twice that for both ways."""
    rule = expectations().figures[figure]
    ways = 2 if figure == "p2p.both" else 1
    return _bound(ways * bandwidth, rule, rule.by_rate.get(f"{rate:g}"))


def adapter(rate: float | None, room: float | None) -> Bound | None:
    """Return the bound of an RDMA adapter's writes, Gb/s: the lesser of its port's rate and its PCI Express link's."""
    known = [value for value in (rate, room) if value]
    return _bound(min(known), expectations().figures["rdma.write"]) if known else None


def between_hosts(network: float) -> Bound | None:
    """Return the bound of a collective over hosts; all of its bus bandwidth passes every host's adapters once."""
    return _bound(network, expectations().figures["nccl.hosts"]) if network else None


def matrix_rate(kind: str, opened: dict[str, Any]) -> Bound | None:
    """Return the bound of a matrix rate, from multiprocessors, highest clock and operations per clock."""
    per_clock = expectations().matrix_per_clock.get(opened.get("compute_capability", ""), {}).get(kind)
    clock, processors = opened.get("clock_khz"), opened.get("multiprocessors")
    if not per_clock or not clock or not processors:
        return None
    return _bound(processors * clock * 1e3 * per_clock / 1e12, expectations().figures[f"matrix.{kind}"])


def collective(name: str, world: int, size: int, bandwidth: float, *, nvls: bool, nvlink: bool) -> Bound:
    """Return the bound of a collective's bus bandwidth, by link bandwidth, GPUs, algorithm and message size."""
    rule = expectations().nccl
    part = _by_size(rule.size, size)
    if not nvlink:
        return _bound(bandwidth * part, rule.pcie)
    table = rule.nvls.get(name, {}) if nvls and str(world) in rule.nvls.get(name, {}) else rule.ring[name]
    typical = _nearest_below(table, world) * part
    return _bound(bandwidth, Fractions(typical, typical * rule.warn, typical * rule.fail))


def _nearest_below(table: dict[str, float], world: int) -> float:
    known = sorted(int(key) for key in table)
    return table[str(max((number for number in known if number <= world), default=known[0]))]


def _by_size(table: dict[str, float], size: int) -> float:
    """Return the fraction for a message size, interpolated over the logarithm of the sizes."""
    known = sorted((int(key), value) for key, value in table.items())
    if size <= known[0][0]:
        return known[0][1] * size / known[0][0]
    for (low, small), (high, large) in itertools.pairwise(known):
        if size <= high:
            share = (math.log(size) - math.log(low)) / (math.log(high) - math.log(low))
            return small + share * (large - small)
    return known[-1][1]


@cache
def gpus_of_type(name: str) -> int | None:
    """Return how many GPUs a cloud's machine type has; None if the matrix does not list it."""
    found = instances(matrix()).get(plain_type(name))
    return found.count if found else None


@cache
def product(device_id: str) -> GpuKind | None:
    """Return the product with this PCI device id; None if the matrix does not list it."""
    number = device_id.lower().removeprefix("0x")
    if len(number) != 4:
        return None
    try:
        return find_gpu(matrix(), f"10de:{number}")
    except GpuSetupError:
        return None
