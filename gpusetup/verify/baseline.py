"""Compare a host with its own good run: for figures without a theory, and for losses above the general floors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import from_items

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.model.verdict import Item, Result

SCHEMA = "gpusetup/baseline/1"
_PROGRAMS = ("runs/s", "tokens/s")
"""Rates of programs, which depend on Python and the processor, too."""
MORE_IS_BETTER = ("GB/s", "TFLOP/s", *_PROGRAMS)
LESS_IS_BETTER = ("µs",)


class HostBaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one host's good run."""

    date: str
    gpus: int
    figures: dict[str, dict[str, float]]


class Baseline(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file: good runs by host."""

    schema: str = SCHEMA
    hosts: dict[str, HostBaseline] = {}


def load(path: Path) -> Baseline:
    """Read the file; a missing one is an empty baseline."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return Baseline()
    except OSError as error:
        raise BadInputError("GS-503", f"cannot read the baseline {path}: {error.strerror}", path=str(path)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInputError("GS-504", f"{path} is not a baseline: {error}", path=str(path)) from error
    if found.schema != SCHEMA:
        raise BadInputError("GS-504", f"{path} is not a baseline ({found.schema!r}, not {SCHEMA!r})", path=str(path))
    return found


def save(path: Path, baseline: Baseline) -> None:
    """Replace the file in one step."""
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(baseline, order="deterministic"), indent=1) + b"\n")
        partial.replace(path)
    except OSError as error:
        raise BadInputError("GS-505", f"cannot write the baseline {path}: {error.strerror}", path=str(path)) from error


def record(results: Iterable[Result], gpus: int, date: str) -> HostBaseline:
    """Return the figures of a run that a later run can be compared with."""
    figures: dict[str, dict[str, float]] = {}
    for result in results:
        if result.unit in MORE_IS_BETTER + LESS_IS_BETTER:
            kept = {item.subject: figure for item in result.items if (figure := _figure(item)) is not None}
            if kept:
                figures[result.id] = kept
    return HostBaseline(date=date, gpus=gpus, figures=figures)


def completed(own: HostBaseline | None, run: HostBaseline) -> HostBaseline:
    """Return the kept run with the figures that only a later run has: the first one may have been quick, or busy."""
    if own is None or not own.figures:
        return run
    return msgspec.structs.replace(own, figures={**run.figures, **own.figures})


def compare(results: Iterable[Result], own: HostBaseline) -> tuple[Result, ...]:
    """Return the results; figures worse than in the host's own good run warn or fail."""
    return tuple(_one(result, own) for result in results)


def _one(result: Result, own: HostBaseline) -> Result:
    before = own.figures.get(result.id)
    if not before or result.unit not in MORE_IS_BETTER + LESS_IS_BETTER:
        return result
    items = tuple(_item(item, before.get(item.subject), result.unit, own.date) for item in result.items)
    changed = [new for new, old in zip(items, result.items, strict=True) if new is not old]
    if not changed:
        return result
    # A figure without a reference value is a skip; the baseline is one.
    well = f"same as its good run of {own.date}" if result.verdict == "skip" else result.text
    found = from_items(list(items), well)
    return msgspec.structs.replace(
        result,
        verdict=found.verdict,
        text=found.text,
        measured=found.measured,
        expected=found.expected,
        limit=found.limit,
        items=items,
    )


def _figure(item: Item) -> float | None:
    """Return the item's figure; None beside a running job, of a MIG slice and of a failure."""
    usable = item.blame != "job" and item.verdict in ("pass", "warn", "skip")
    return float(item.measured) if usable and isinstance(item.measured, (int, float)) else None


def _item(item: Item, before: float | None, unit: str, date: str) -> Item:
    figure = _figure(item)
    if before is None or before <= 0 or figure is None:
        return item
    share = figure / before if unit in MORE_IS_BETTER else before / max(figure, 1e-9)
    warn, fail = setting("baseline_warn"), setting("baseline_fail")
    if unit in _PROGRAMS:
        warn, fail = setting("baseline_program_warn"), setting("baseline_program_fail")
    if unit in LESS_IS_BETTER:  # latencies vary: a warning at most, and later
        warn, fail = fail, 0.0
    if share >= warn:
        if item.verdict != "skip":
            return item
        return msgspec.structs.replace(
            item, verdict="pass", text=f"same as its good run of {date}", expected=before, limit=round(before * warn, 2)
        )
    verdict = "fail" if share < fail else "warn"
    text = f"{figure:.4g} {unit}, {100 * (1 - share):.0f} % worse than its last good run of {date} ({before:.4g})"
    limit = before * (fail if verdict == "fail" else warn) if unit in MORE_IS_BETTER else before / warn
    return msgspec.structs.replace(item, verdict=verdict, text=text, expected=before, limit=round(limit, 2))
