"""Compare a host with its own good run: for figures without a theory, and for losses above the general floors.

`--strict` compares with the floors of a large operator's node check for the same GPUs. They are absolute and were set
for that operator's machines, so they apply only on request: gpusetup's own are fractions of what the machine can do.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError
from gpusetup.model import Reading
from gpusetup.model.verdict import Item, Result, worst
from gpusetup.recovery.table import Source
from gpusetup.verify.expected import setting
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import from_items

SCHEMA = "gpusetup/baseline/1"
MORE_IS_BETTER = ("GB/s", "TFLOP/s")
LESS_IS_BETTER = ("µs",)


class Kept(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A figure of a good run, and that run's day."""

    value: float
    date: str


class HostBaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one host's good runs."""

    gpus: int
    figures: dict[str, dict[str, Kept]]


class Baseline(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file: good runs by host."""

    schema: str = SCHEMA
    hosts: dict[str, HostBaseline] = {}


def load(path: Path) -> Baseline:
    """Read the file; a missing one is an empty baseline."""
    with Reading(path, ("GS-504", f"{path} is not a baseline"), ("GS-503", f"cannot read the baseline {path}")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Baseline)
        except FileNotFoundError:
            return Baseline()
    if found.schema != SCHEMA:
        raise BadInputError("GS-504", f"{path} is not a baseline ({found.schema!r}, not {SCHEMA!r})", path=str(path))
    return found


def save(path: Path, baseline: Baseline) -> None:
    """Replace the file in one step."""
    try:
        write_whole(path, msgspec.json.format(msgspec.json.encode(baseline, order="deterministic"), indent=1) + b"\n")
    except OSError as error:
        raise BadInputError("GS-505", f"cannot write the baseline {path}: {error.strerror}", path=str(path)) from error


def record(results: Iterable[Result], gpus: int, date: str) -> HostBaseline:
    """Return the figures of a run that a later run can be compared with."""
    figures: dict[str, dict[str, Kept]] = {}
    for result in results:
        if result.unit in MORE_IS_BETTER + LESS_IS_BETTER:
            kept = {item.subject: Kept(figure, date) for item in result.items if (figure := _figure(item)) is not None}
            if kept:
                figures[result.id] = kept
    return HostBaseline(gpus=gpus, figures=figures)


def completed(own: HostBaseline | None, run: HostBaseline, *, renews: bool = False) -> HostBaseline:
    """Return the figures of both runs, of the kept one first or, with `renews`, of the new one.

    Either may have been quick or busy, or of some GPUs only.
    """
    if own is None or not own.figures or (renews and own.gpus != run.gpus):
        return run
    kept, more = (run, own) if renews else (own, run)
    names = {**more.figures, **kept.figures}
    figures = {name: {**more.figures.get(name, {}), **kept.figures.get(name, {})} for name in names}
    return msgspec.structs.replace(kept, figures=figures)


def compare(results: Iterable[Result], own: HostBaseline) -> tuple[Result, ...]:
    """Return the results; figures worse than in the host's own good run warn or fail."""
    return tuple(_one(result, own) for result in results)


def _one(result: Result, own: HostBaseline) -> Result:
    before = own.figures.get(result.id)
    if not before or result.unit not in MORE_IS_BETTER + LESS_IS_BETTER:
        return result
    items = tuple(_item(item, before.get(item.subject), result.unit) for item in result.items)
    changed = [new for new, old in zip(items, result.items, strict=True) if new is not old]
    if not changed:
        return result
    # A figure without a reference value is a skip; the baseline is one.
    days = dict.fromkeys(item.text for item in changed)
    well = "; ".join(days) if result.verdict == "skip" else result.text
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


def _item(item: Item, kept: Kept | None, unit: str) -> Item:
    figure = _figure(item)
    if kept is None or kept.value <= 0 or figure is None:
        return item
    before, date = kept.value, kept.date
    share = figure / before if unit in MORE_IS_BETTER else before / max(figure, 1e-9)
    warn, fail = setting("baseline_warn"), setting("baseline_fail")
    if unit in LESS_IS_BETTER:  # latencies vary: a warning at most, and later
        warn, fail = fail, 0.0
    if share >= warn and item.verdict != "skip":
        return item
    verdict, part = ("fail", fail) if share < fail else ("warn" if share < warn else "pass", warn)
    text = f"{figure:.4g} {unit}, {100 * (1 - share):.0f} % worse than its last good run of {date} ({before:.4g})"
    text = f"same as its good run of {date}" if verdict == "pass" else text
    limit = before * part if unit in MORE_IS_BETTER else before / part
    return msgspec.structs.replace(item, verdict=verdict, text=text, expected=before, limit=round(limit, 2))


class Floor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The least figure of a check on a product."""

    gpu: str
    check: str
    floor: float
    source: str
    gpus: int = 0
    """For collectives: the number of GPUs that took part."""


class Floors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    schema: str
    date: str
    sources: dict[str, Source]
    floors: tuple[Floor, ...]


@cache
def floors() -> Floors:
    """Load the data file."""
    return msgspec.json.decode((Path(__file__).parent / "data/floors.json").read_bytes(), type=Floors)


def strict(results: tuple[Result, ...], machine: Machine) -> tuple[Result, ...]:
    """Return the results; a figure below its floor fails, unless a job ran on the GPU."""
    names = {gpu.name for gpu in machine.gpus}
    found = {floor.check: floor for floor in floors().floors if names == {floor.gpu}}
    return tuple(_to_floor(result, found[result.id]) if result.id in found else result for result in results)


def _to_floor(result: Result, floor: Floor) -> Result:
    counted = [item for item in result.items if item.verdict in ("pass", "warn") and _counts(item, floor)]
    if floor.gpus and counted:
        counted = [max(counted, key=_message)]
    low = [item for item in counted if isinstance(item.measured, (int, float)) and item.measured < floor.floor]
    if not low:
        return result
    publisher = floors().sources[floor.source].publisher
    text = f"below {floor.floor:g} {result.unit}, the floor of {publisher}'s node check (--strict)"
    failed = {"verdict": "fail", "text": text, "limit": floor.floor}
    items = tuple(msgspec.structs.replace(item, **failed) if item in low else item for item in result.items)
    worse = min(low, key=lambda item: float(item.measured or 0))
    return msgspec.structs.replace(
        result,
        verdict=worst([result.verdict, "fail"]),
        text=f"{worse.subject}: {text}",
        measured=worse.measured,
        limit=floor.floor,
        items=items,
    )


def _counts(item: Item, floor: Floor) -> bool:
    return item.blame != "job" and (not floor.gpus or item.subject.startswith(f"{floor.gpus} GPUs, "))


def _message(item: Item) -> float:
    """Return the message size at the end of `8 GPUs, 4 GiB`, in KiB."""
    found = re.search(r"(\d+) (KiB|MiB|GiB)$", item.subject)
    return float(found[1]) * {"KiB": 1, "MiB": 1024, "GiB": 1 << 20}[found[2]] if found else 0.0
