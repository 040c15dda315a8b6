"""Compare a host with its own good run: for figures without a theory, and for losses above the general floors.

Over many runs, figures that fall steadily are found, too (slow decay).

`--strict` compares with the floors of a large operator's node check for the same GPUs. They are absolute and were set
for that operator's machines, so they apply only on request: gpusetup's own are fractions of what the machine can do.
"""

import inspect
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import msgspec

from gpusetup.drive.causes import counted
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError
from gpusetup.model import Reading
from gpusetup.model.verdict import Item, Result, worst
from gpusetup.recovery.table import Source
from gpusetup.verify.expected import setting
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import from_items, usual_blame

SCHEMA = "gpusetup/baseline/1"
_PROGRAMS = ("runs/s", "tokens/s")
"""Rates of programs, which depend on Python and the processor, too."""
MORE_IS_BETTER = ("GB/s", "TFLOP/s", *_PROGRAMS)
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
    if unit in _PROGRAMS:
        warn, fail = setting("baseline_program_warn"), setting("baseline_program_fail")
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
    marked = {item.subject: _failed(item, floor, text) for item in low}
    items = tuple(marked.get(item.subject, item) for item in result.items)
    worse = min(low, key=lambda item: float(item.measured or 0))
    return msgspec.structs.replace(
        result,
        verdict=worst([result.verdict, "fail"]),
        text=f"{worse.subject}: {text}",
        measured=worse.measured,
        limit=floor.floor,
        items=items,
    )


def _failed(item: Item, floor: Floor, text: str) -> Item:
    return msgspec.structs.replace(item, verdict="fail", text=text, limit=floor.floor)


def _counts(item: Item, floor: Floor) -> bool:
    return item.blame != "job" and (not floor.gpus or item.subject.startswith(f"{floor.gpus} GPUs, "))


def _message(item: Item) -> float:
    """Return the message size at the end of `8 GPUs, 4 GiB`, in KiB."""
    found = re.search(r"(\d+) (KiB|MiB|GiB)$", item.subject)
    return float(found[1]) * {"KiB": 1, "MiB": 1024, "GiB": 1 << 20}[found[2]] if found else 0.0


DECAY = "figures.decay"
FEWEST = 12
_ENDS = 5
_DROP, _NOISES, _SIGNIFICANT, _PART = 0.03, 4.0, 3.5, 0.2
_SAMPLE = 120
_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation to the standard deviation of normal noise."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One figure of one part over time, oldest first."""

    check: str
    subject: str
    unit: str
    points: tuple[tuple[float, float], ...]
    """Seconds since 1970, and what was measured."""


@dataclass(frozen=True, kw_only=True)
class Decay:
    """How a figure fell, in its own unit."""

    series: Series
    before: float
    now: float
    share: float
    """The loss as a fraction: 0.07 for 7 %."""


def decay_of(series: Series) -> Decay | None:
    """Return how a figure fell; None if it did not fall steadily, by one bad run, in one step or by noise.

    A figure is a finding when all of this holds, over at least twelve runs of one set of GPUs:

    - the median of the last five runs is 3 % or more below the median of the first five;
    - the fall is at least four times the figure's noise from run to run;
    - the order of the runs shows a trend (Mann-Kendall's test, z of 3.5: one in 4,000 series of mere noise);
    - it fell from the first third of the runs to the second and from that to the last: one step has another cause.
    """
    values = [value for _, value in series.points if math.isfinite(value) and value > 0]
    if len(values) < FEWEST or series.unit not in MORE_IS_BETTER + LESS_IS_BETTER:
        return None
    good = values if series.unit in MORE_IS_BETTER else [1 / value for value in values]
    before, now = median(good[:_ENDS]), median(good[-_ENDS:])
    fall = before - now
    if len(good) > _SAMPLE:  # the tests below look at every pair
        good = [good[number * (len(good) - 1) // (_SAMPLE - 1)] for number in range(_SAMPLE)]
    if fall < _DROP * before or fall < _NOISES * _noise(good) or _trend(good) > -_SIGNIFICANT:
        return None
    third = len(good) // 3
    between = median(good[third:-third])
    if min(median(good[:third]) - between, between - median(good[-third:])) < _PART * fall:
        return None
    first, last = (median(values[:_ENDS]), median(values[-_ENDS:]))
    return Decay(series=series, before=first, now=last, share=fall / before)


def _noise(values: Sequence[float]) -> float:
    """Return the noise without the trend: from run to run or around the line through the values, the larger one."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    middle = median(steps)
    stepwise = _TO_SIGMA * median(abs(step - middle) for step in steps) / math.sqrt(2)
    slope = median((b - a) / (j - i) for i, a in enumerate(values) for j, b in enumerate(values[i + 1 :], i + 1))
    left = [value - slope * number for number, value in enumerate(values)]
    middle = median(left)
    return max(stepwise, _TO_SIGMA * median(abs(value - middle) for value in left))


def _trend(values: Sequence[float]) -> float:
    """Return Mann-Kendall's z, negative for a fall: how far the rising and falling pairs are from chance."""
    score = sum((b > a) - (b < a) for number, a in enumerate(values) for b in values[number + 1 :])
    count = len(values)
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (score - (score > 0) + (score < 0)) / spread


def decay_result(series: Iterable[Series]) -> Result | None:
    """Return the result on all figures with enough runs; None without any."""
    enough = [one for one in series if len(one.points) >= FEWEST]
    if not enough:
        return None
    items = [_fallen(one, decay_of(one)) for one in enough]
    fallen = [item for item in items if item.verdict == "warn"]
    runs = max(len(one.points) for one in enough)
    text = "; ".join(f"{item.subject}: {item.text}" for item in fallen[:3])
    if len(fallen) > 3:
        text += f"; and {len(fallen) - 3} more"
    return Result(
        id=DECAY,
        level="full",
        verdict=worst([item.verdict for item in items]),
        text=text or f"no figure fell steadily over {counted(runs, 'run')}",
        items=tuple(fallen),
        blame=fallen[0].blame if fallen else "",
    )


def _fallen(series: Series, decay: Decay | None) -> Item:
    subject = f"{series.check} {series.subject}".strip()
    if decay is None:
        return Item(subject, "pass")
    text = (
        f"{decay.now:.4g} {series.unit}, {100 * decay.share:.0f} % worse than its first runs ({decay.before:.4g}),"
        f" falling over {counted(len(series.points), 'run')}"
    )
    return Item(subject, "warn", text, decay.now, decay.before, blame=usual_blame(series.check))


def decay_page() -> str:
    """Return the page of `figures.decay`; it repeats the rules of `decay_of`."""
    page = Path(__file__).with_name("data").joinpath("decay.txt").read_text(encoding="utf-8")
    return page.format(name=DECAY, rules=inspect.cleandoc(decay_of.__doc__ or "").partition("\n\n")[2])
