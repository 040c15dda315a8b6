"""The figures of GPUs and hosts: short texts with units, trouble, filters and sort orders."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict

from gpusetup_fleet.model.watch import GpuNow
from gpusetup_fleet.watch.fleet import Link

_SLOWED = {
    "hw_slowdown": (4, "slowed by hardware"),
    "hw_thermal_slowdown": (4, "slowed by heat (hardware)"),
    "hw_power_brake_slowdown": (4, "power brake"),
    "sw_thermal_slowdown": (3, "slowed by heat"),
    "sw_power_cap": (1, "power cap"),
}
"""Throttle reasons to show, with their score; under load a power cap is normal."""
GRAVE = 3
"""The lowest score of a row in trouble."""


@dataclass(frozen=True)
class Trouble:
    """A score (0: no trouble) and the text."""

    score: int = 0
    text: str = ""


class Figures(GpuNow, frozen=True, kw_only=True):
    """The figures of a row: of one GPU, or of all GPUs of a host."""

    gpus: int = 1
    trouble: Trouble = Trouble()
    note: str = ""


def of_gpu(gpu: GpuNow) -> Figures:
    """Return a GPU's figures."""
    found = trouble(gpu)
    return Figures(**asdict(gpu), trouble=found, note=found.text or ("MIG" if gpu.mig else _users(gpu)))


def of_host(link: Link) -> Figures:
    """Return the figures of all GPUs of a host, with the trouble of the worst one."""
    gpus = link.look.gpus if link.look is not None else ()
    found, note = _host_trouble(link)
    busy = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return Figures(
        index=-1, gpus=len(gpus), utilization=round(sum(busy) / len(busy)) if busy else None,
        memory_used=_sum(gpu.memory_used for gpu in gpus), memory_total=_sum(gpu.memory_total for gpu in gpus),
        power=_sum(gpu.power for gpu in gpus), power_limit=_sum(gpu.power_limit for gpu in gpus),
        temperature=max((gpu.temperature for gpu in gpus if gpu.temperature is not None), default=None),
        clock=min((gpu.clock for gpu in gpus if gpu.clock is not None), default=None),
        pcie_tx=_sum(gpu.pcie_tx for gpu in gpus), pcie_rx=_sum(gpu.pcie_rx for gpu in gpus),
        nvlink_tx=_sum(gpu.nvlink_tx for gpu in gpus), nvlink_rx=_sum(gpu.nvlink_rx for gpu in gpus), trouble=found,
        note=note,
    )  # fmt: skip


def trouble(gpu: GpuNow) -> Trouble:
    """Return what is wrong with a GPU."""
    if gpu.error:
        return Trouble(5, plain(gpu.error))
    slowed = [_SLOWED[reason] for reason in gpu.throttle or () if reason in _SLOWED]
    return Trouble(*max(slowed)) if slowed else Trouble()


def _host_trouble(link: Link) -> tuple[Trouble, str]:
    """Return the gravest trouble of a host, and the note of its row."""
    state, age = link.state, ago(link.age)
    since = f", last look {age} ago" if age else ""
    if state in ("down", "refused"):
        return Trouble(7, "down"), f"{state}: {plain(link.reason)}{since}"
    if state == "silent":
        return Trouble(7, "silent"), f"no line for {ago(link.clock() - link.heard)}{since}"
    if state == "stuck" and link.stuck is not None:
        asked = f" ({plain(link.stuck.asked)})" if link.stuck.asked else ""
        return Trouble(6, "stuck"), f"its driver is silent for {ago(link.stuck.stuck)}{asked}"
    if link.look is None or state in ("waiting", "connecting"):
        return Trouble(), f"{state}{since}"
    if link.look.error:
        return Trouble(6, "no driver"), plain(link.look.error)
    if not link.look.gpus:
        return Trouble(), "no GPU"
    worst = max(link.look.gpus, key=lambda gpu: (trouble(gpu).score, gpu.temperature or 0))
    found = trouble(worst)
    if found.score > 1:
        return found, f"#{worst.index} {found.text}"
    users = ", ".join(dict.fromkeys(name for gpu in link.look.gpus for name in (_users(gpu),) if name))
    return found, users or found.text


def _users(gpu: GpuNow) -> str:
    """Return the users of the programs on a GPU."""
    return plain(", ".join(dict.fromkeys(program.user or f"pid {program.pid}" for program in gpu.processes)))


def _sum(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(sum(known)) if known else None


def plain(text: str | None) -> str:
    """Return a host's text without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text or "")


def percent(value: float | None) -> str:
    """Return `97%`."""
    return "" if value is None else f"{value:.0f}%"


def size(value: float | None) -> str:
    """Return bytes in up to five characters: 0, 640M, 3.2G, 101G, 1.1T."""
    if value is None:
        return ""
    return _scaled(value, 1024)


def rate(value: float | None) -> str:
    """Return bytes a second in powers of 1000, as vendors do: 52G is 52 GB/s."""
    return "" if value is None else _scaled(value, 1000)


def _scaled(value: float, step: int) -> str:
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if value >= step**power:
            amount = value / step**power
            return f"{amount:.1f}{unit}" if amount < 9.95 else f"{amount:.0f}{unit}"
    return f"{value:.0f}"


def pair(one: str, other: str) -> str:
    """Return `101G/140G`; empty if neither is known."""
    return f"{one or '?'}/{other or '?'}" if one or other else ""


def ago(seconds: float | None) -> str:
    """Return a time span in a few letters: 8s, 3m, 2h."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 7200 else f"{seconds / 3600:.0f}h"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts gpu-2 before gpu-10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name)]


_TEXTS: dict[str, Callable[[Link, GpuNow | None], Iterable[str | None]]] = {
    "host": lambda link, _: (link.host,),
    "state": lambda link, _: (link.state,),
    "driver": lambda link, _: (link.look.driver if link.look else None,),
    "name": lambda _, gpu: (gpu.name,) if gpu else (),
    "throttle": lambda _, gpu: (gpu.throttle or ()) if gpu else (),
    "user": lambda _, gpu: [program.user for program in gpu.processes] if gpu else (),
    "command": lambda _, gpu: [program.command for program in gpu.processes] if gpu else (),
    "container": lambda _, gpu: [program.container for program in gpu.processes] if gpu else (),
}
SORTS: dict[str, Callable[[Figures], float]] = {
    "trouble": lambda row: row.trouble.score,
    "util": lambda row: _or_less(row.utilization),
    "memory": lambda row: _or_less(row.memory_share),
    "power": lambda row: _or_less(row.power),
    "temp": lambda row: _or_less(row.temperature),
}
"""Sort orders other than `name`; the highest value comes first."""


def _or_less(value: float | None) -> float:
    return -1.0 if value is None else value


class Filter:
    """A filter of hosts and GPUs: all words must be in the texts of the same GPU and its host."""

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = tuple(term for term in terms if term.strip())
        self._words = [term.strip().lower() for term in self.terms]

    def gpus(self, link: Link) -> tuple[GpuNow, ...] | None:
        """Return the GPUs of a host that match; None: hide the host."""
        known = link.look.gpus if link.look is not None else ()
        if not self._words:
            return known
        if known:
            return tuple(gpu for gpu in known if all(_says(link, gpu, word) for word in self._words)) or None
        return () if all(_says(link, None, word) for word in self._words) else None


def _says(link: Link, gpu: GpuNow | None, text: str) -> bool:
    return any(text in value.lower() for read in _TEXTS.values() for value in read(link, gpu) if value)


def ordered(links: Iterable[Link], by: str, *, turned: bool = False) -> list[Link]:
    """Return hosts in natural order of their names, or the highest value of `by` first."""
    named = sorted(links, key=lambda link: natural(link.host))
    if by in SORTS:
        named.sort(key=lambda link: SORTS[by](of_host(link)), reverse=True)
    return named[::-1] if turned else named


def ordered_gpus(gpus: Sequence[GpuNow], by: str, *, turned: bool = False) -> list[GpuNow]:
    """Return the GPUs of a host by index, or the highest value of `by` first."""
    found = sorted(gpus, key=lambda gpu: gpu.index)
    if by in SORTS:
        found.sort(key=lambda gpu: SORTS[by](of_gpu(gpu)), reverse=True)
    return found[::-1] if turned else found
