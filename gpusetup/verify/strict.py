"""`--strict`: a figure below the floor of a large operator's node check for the same GPUs is a failure.

These floors are absolute and were set for that operator's machines, so they apply only on request: gpusetup's own are
fractions of what the machine can do. Of a collective, the largest measured message is compared with the floor.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpusetup.model.verdict import Item, Result, worst
from gpusetup.verify.expected import Source

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


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
    return tuple(_one(result, found[result.id]) if result.id in found else result for result in results)


def _one(result: Result, floor: Floor) -> Result:
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
