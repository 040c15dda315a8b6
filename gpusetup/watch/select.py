"""Which hosts and GPUs are shown, and in what order: `util>90`, `user=anna`, `state!=live`, or any word."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError
from gpusetup.watch.figures import natural, of_gpu, of_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpusetup.model.watch import GpuNow
    from gpusetup.watch.figures import Figures
    from gpusetup.watch.link import Link

__all__ = ["FIELDS", "SORTS", "Filter", "ordered", "ordered_gpus"]

_TERM = re.compile(r"([a-z]+)(<=|>=|!=|=|<|>|~)(.*)", re.DOTALL)
_NUMBERS: dict[str, Callable[[GpuNow], float | None]] = {
    "util": lambda gpu: gpu.utilization,
    "memory": lambda gpu: gpu.memory_share,
    "power": lambda gpu: gpu.power,
    "temp": lambda gpu: gpu.temperature,
    "clock": lambda gpu: gpu.clock,
    "programs": lambda gpu: len(gpu.processes),
    "gpu": lambda gpu: gpu.index,
}
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
FIELDS = (*_NUMBERS, *_TEXTS)
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
SORTS: dict[str, Callable[[Figures], float]] = {
    "trouble": lambda row: row.trouble.score,
    "util": lambda row: _or_less(row.utilization),
    "memory": lambda row: _or_less(row.memory),
    "power": lambda row: _or_less(row.power),
    "temp": lambda row: _or_less(row.temperature),
}
"""Beside `name`; the highest comes first."""


def _or_less(value: float | None) -> float:
    return -1.0 if value is None else value


class Filter:
    """All terms must hold, on one GPU where they speak of GPUs."""

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = tuple(term for term in terms if term.strip())
        self._tests = [_test(term) for term in self.terms]

    def gpus(self, link: Link) -> tuple[GpuNow, ...] | None:
        """Return the GPUs of a host that are shown; None: not even the host."""
        known = link.look.gpus if link.look is not None else ()
        if not self._tests:
            return known
        if known:
            return tuple(gpu for gpu in known if all(test(link, gpu) for test in self._tests)) or None
        return () if all(test(link, None) for test in self._tests) else None


def _test(term: str) -> Callable[[Link, GpuNow | None], bool]:
    found = _TERM.fullmatch(term.strip())
    if found is None:
        return lambda link, gpu: _says(link, gpu, term.strip().lower())
    name, sign, text = found.groups()
    if name in _NUMBERS:
        return _number_test(term, name, sign, text)
    if name in _TEXTS and sign in ("=", "!=", "~"):
        anywhere = name in ("host", "state", "driver")
        return lambda link, gpu: (
            (anywhere or gpu is not None) and _text_holds(_TEXTS[name](link, gpu), sign, text.strip().lower())
        )
    raise BadInputError(
        "GS-922",
        f"filter {term!r} is not understood",
        path="--filter",
        note=f"fields: {', '.join(FIELDS)}; numbers take < > <= >= = !=, texts take = != ~ (contains)",
        hint="for instance: --filter 'util>90', --filter user=anna, --filter state!=live, or any word",
    )


def _number_test(term: str, name: str, sign: str, text: str) -> Callable[[Link, GpuNow | None], bool]:
    try:
        bound, compare = float(text.strip().rstrip("%WC")), _COMPARED[sign]
    except (ValueError, KeyError):
        raise BadInputError(
            "GS-922",
            f"filter {term!r} is not understood: {name} is compared with a number",
            path="--filter",
            hint=f"for instance: --filter '{name}>50'",
        ) from None

    def holds(_: Link, gpu: GpuNow | None) -> bool:
        value = _NUMBERS[name](gpu) if gpu is not None else None
        return value is not None and compare(value, bound)

    return holds


def _text_holds(values: Iterable[str | None], sign: str, text: str) -> bool:
    known = [value.lower() for value in values if value]
    if sign == "~":
        return any(text in value for value in known)
    return (text in known) == (sign == "=")


def _says(link: Link, gpu: GpuNow | None, text: str) -> bool:
    return any(text in value.lower() for read in _TEXTS.values() for value in read(link, gpu) if value)


def ordered(links: Iterable[Link], by: str, *, turned: bool = False) -> list[Link]:
    """Return hosts in order: by name, or the most of something first."""
    named = sorted(links, key=lambda link: natural(link.host))
    if by in SORTS:
        named.sort(key=lambda link: SORTS[by](of_host(link)), reverse=True)
    return named[::-1] if turned else named


def ordered_gpus(gpus: Sequence[GpuNow], by: str, *, turned: bool = False) -> list[GpuNow]:
    """Return the GPUs of a host in the same order."""
    found = sorted(gpus, key=lambda gpu: gpu.index)
    if by in SORTS:
        found.sort(key=lambda gpu: SORTS[by](of_gpu(gpu)), reverse=True)
    return found[::-1] if turned else found
