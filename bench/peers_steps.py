"""Where the seconds of a run go: its tasks on the host with their operations, and all that lies between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["BETWEEN", "Step", "steps", "table"]

BETWEEN = "between them: starts of programs, plans, tasks that ask no host"
_OVER = {"ok", "changed", "skipped", "failed", "ignored", "unreachable"}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as often as it was done."""

    name: str
    times: int
    seconds: float
    operations: int


def steps(events: Iterable[Mapping[str, Any]], calls: Sequence[float], began: float, ended: float) -> tuple[Step, ...]:
    """Return the tasks that spoke to the host in the order in which they came first; what else there is comes last."""
    found: dict[str, Step] = {}
    since: dict[str, float] = {}
    for event in events:
        if event["event"] == "begin":
            since[event["task"]] = event["time"]
        elif event["event"] in _OVER and event["task"] in since:
            start, name = since.pop(event["task"]), event["name"].rpartition(" : ")[2]
            asked = sum(start <= call < event["time"] for call in calls)
            if asked:
                before = found.get(name, Step(name=name, times=0, seconds=0.0, operations=0))
                found[name] = Step(
                    name=name,
                    times=before.times + 1,
                    seconds=before.seconds + event["time"] - start,
                    operations=before.operations + asked,
                )
    spent = sum(step.seconds for step in found.values())
    rest = Step(
        name=BETWEEN,
        times=1,
        seconds=ended - began - spent,
        operations=len(calls) - sum(step.operations for step in found.values()),
    )
    return tuple(msgspec.structs.replace(step, seconds=round(step.seconds, 2)) for step in (*found.values(), rest))


def table(found: Sequence[Step]) -> str:
    """Return them as Markdown."""
    rows = [
        f"| {step.name}{f' ({step.times} times)' if step.times > 1 else ''} | {step.seconds:.1f} | {step.operations} |"
        for step in found
    ]
    return "\n".join(["| step | seconds | operations |", "|---|---|---|", *rows]) + "\n"
