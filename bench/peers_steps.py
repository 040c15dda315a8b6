"""Where the time of a run goes: its tasks on the host with their operations, and the time between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bench.processor import Used

__all__ = ["BETWEEN", "Step", "steps", "table"]

BETWEEN = "between them: starts of programs, plans, tasks that ask no host"
_OVER = {"ok", "changed", "skipped", "failed", "ignored", "unreachable"}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A task, with the sum of all its executions."""

    name: str
    times: int
    seconds: float
    operations: int
    controller: float = 0.0
    """CPU seconds of the controller."""
    host: float = 0.0
    """CPU seconds of the host."""

    def add(self, seconds: float, operations: int, used: Used) -> Step:
        """Return the step with one more execution."""
        return Step(
            name=self.name,
            times=self.times + 1,
            seconds=round(self.seconds + seconds, 3),
            operations=self.operations + operations,
            controller=round(self.controller + used.controller, 3),
            host=round(self.host + used.hosts, 3),
        )


def steps(
    events: Iterable[Mapping[str, Any]],
    calls: Sequence[float],
    began: float,
    ended: float,
    used: Callable[[float], Used] = lambda _: Used(),
) -> tuple[Step, ...]:
    """Return the tasks with remote operations, in the order of their first start; the rest of the time comes last.

    `used` returns the CPU seconds used up to a moment.
    """
    found: dict[str, Step] = {}
    since: dict[str, float] = {}
    for event in events:
        if event["event"] == "begin":
            since[event["task"]] = event["time"]
        elif event["event"] in _OVER and event["task"] in since:
            start, end, name = since.pop(event["task"]), event["time"], event["name"].rpartition(" : ")[2]
            asked = sum(start <= call < end for call in calls)
            if asked:
                before = found.get(name, _none(name))
                found[name] = before.add(end - start, asked, used(end) - used(start))
    own = Used(sum(step.controller for step in found.values()), sum(step.host for step in found.values()))
    seconds = ended - began - sum(step.seconds for step in found.values())
    operations = len(calls) - sum(step.operations for step in found.values())
    rest = _none(BETWEEN).add(seconds, operations, used(ended) - used(began) - own)
    return (*found.values(), rest)


def _none(name: str) -> Step:
    return Step(name=name, times=0, seconds=0.0, operations=0)


def table(found: Sequence[Step]) -> str:
    """Return the steps as a Markdown table."""
    rows = [
        f"| {step.name}{f' ({step.times} times)' if step.times > 1 else ''} | {step.seconds:.1f} | {step.operations} "
        f"| {step.controller:.1f} | {step.host:.1f} |"
        for step in found
    ]
    columns = "seconds | operations | processor seconds of the controller | of the host"
    return "\n".join([f"| step | {columns} |", "|---|---|---|---|---|", *rows]) + "\n"
