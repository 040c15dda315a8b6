"""What recovery actions, Xid numbers and causes of the doctor need; which lines of the kernel's log are settled."""

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from gpusetup.model.diagnosis import Need, Recovery, Step
from gpusetup.model.verdict import Verdict


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document to look up."""

    title: str
    publisher: str
    url: str = ""


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of an Xid, with its verdict."""

    verdict: Verdict
    text: str
    action: str
    bucket: str = "unknown"
    """The immediate action in NVIDIA's catalogue."""
    sources: tuple[str, ...] = ()


class XidCatalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    schema: str
    date: str
    sources: dict[str, Source]
    default: Meaning
    xids: dict[int, Meaning]


@cache
def catalogue() -> XidCatalogue:
    """Load the catalogue."""
    return msgspec.json.decode((Path(__file__).parent / "data/xid.json").read_bytes(), type=XidCatalogue)


def known(number: int) -> Meaning | None:
    """Return the meaning of an Xid; None if the catalogue lacks it."""
    return catalogue().xids.get(number)


def meaning(number: int) -> Meaning:
    """Return the meaning of an Xid, or the default meaning if the catalogue lacks it."""
    return known(number) or catalogue().default


class NeedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One need: its text, the steps that gpusetup takes, the commands for a person."""

    need: Need
    text: str
    steps: tuple[Step, ...] = ()
    commands: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


class Meant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The need behind a word of the catalogue or a cause of the doctor."""

    need: Need
    sources: tuple[str, ...]


class DriverRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recovery action of the driver: NVML's number, nvidia-smi's words, the need."""

    number: int
    words: tuple[str, ...]
    need: Need
    sources: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    schema: str
    date: str
    sources: dict[str, Source]
    needs: tuple[NeedRow, ...]
    driver: tuple[DriverRow, ...]
    buckets: dict[str, Meant]
    causes: dict[str, Meant]


@cache
def table() -> Table:
    """Load the table."""
    return msgspec.json.decode((Path(__file__).parent / "data/recovery.json").read_bytes(), type=Table)


def recovery(need: Need, why: Iterable[str], gpus: Iterable[str] = ()) -> Recovery:
    """Return a need with its text, steps and commands from the table."""
    row = next(row for row in table().needs if row.need == need)
    return Recovery(
        need=need, text=row.text, why=tuple(why), gpus=tuple(gpus), steps=row.steps, commands=row.commands
    )  # fmt: skip


def of_driver(word: str, gpus: Iterable[str] = ()) -> Recovery:
    """Return what the driver's recovery action needs; a person for an unknown one."""
    wanted = " ".join(word.lower().split())
    known = (row.need for row in table().driver if wanted in (words.lower() for words in row.words))
    need: Need = next(known, "look")
    return recovery(need, [f"the driver's recovery action is: {word}"], gpus)


def of_xid(number: int, gpus: Iterable[str] = ()) -> Recovery:
    """Return what an Xid needs according to NVIDIA's catalogue."""
    bucket = meaning(number).bucket
    said = f"NVIDIA's catalogue says {bucket} of Xid {number}"
    why = f"no source says what helps after Xid {number}" if bucket == "unknown" else said
    return recovery(table().buckets[bucket].need, [why], gpus)


def of_cause(cause: str, gpus: Iterable[str] = ()) -> Recovery | None:
    """Return what a cause of the doctor needs that is not an Xid; None if the cause's fixes are enough."""
    known = table().causes.get(cause)
    return None if known is None else recovery(known.need, [f"gpusetup's own table for {cause}"], gpus)


def gravest(found: Iterable[Recovery]) -> Recovery | None:
    """Return the gravest of several needs, with the GPUs and reasons of all that share it; None without any."""
    every = list(found)
    if not every:
        return None
    order: tuple[Need, ...] = get_args(Need)
    worst = max(every, key=lambda one: order.index(one.need))
    same = [one for one in every if one.need == worst.need]
    return recovery(
        worst.need,
        dict.fromkeys(reason for one in same for reason in one.why),
        dict.fromkeys(gpu for one in same for gpu in one.gpus),
    )


GPU = re.compile(r"\b(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)\b")
"""A PCI address as the kernel and the driver write it."""
_SINCE_BOOT = re.compile(r"^\[\s*(\d+\.\d+)\]")
_BY_CLOCK = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d):?(\d\d)?")


class Reset(NamedTuple):
    """When a GPU was reset, in seconds since the boot and since 1970."""

    uptime: float
    time: float


def clock_of(line: str) -> float | None:
    """Return the time at the beginning of a line; None without one."""
    found = _BY_CLOCK.match(line)
    if found is None:
        return None
    zone = "+00:00" if found[2] == "Z" else f"{found[2]}:{found[3] or '00'}"
    return dt.datetime.fromisoformat(found[1] + zone).timestamp()


def settled(line: str, resets: Mapping[str, Reset]) -> bool:
    """Return whether a line reports an Xid of a GPU that was reset afterwards."""
    address = GPU.search(line) if "Xid" in line else None
    if address is None:
        return False
    reset = next((when for gpu, when in resets.items() if gpu.startswith(address[1].lower())), None)
    if reset is None:
        return False
    if since := _SINCE_BOOT.match(line):
        return float(since[1]) <= reset.uptime
    clock = clock_of(line)
    return clock is not None and clock <= reset.time


def newer_than(document: dict[str, Any], moment: float) -> dict[str, Any]:
    """Return the observations without kernel log lines up to a time; lines without a time stay."""
    quick = document.get("quick") or {}
    log = quick.get("kernel_log")
    if not moment or not isinstance(log, dict):
        return document
    lines = [line for line in log.get("lines") or () if (clock_of(line) or moment + 1) > moment]
    return {**document, "quick": {**quick, "kernel_log": {**log, "lines": lines}}}
