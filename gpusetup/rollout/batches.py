"""Divide a fleet into batches (`1,10%,50%`: one host, a tenth, then halves), and resume a stopped rollout."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from gpusetup.drive.rundir import RunDirectory, runs_in_order
from gpusetup.errors import BadInputError
from gpusetup.model import kept_in
from gpusetup.model.lifecycle import HostOutcome
from gpusetup.model.plan import HostPlan


def batches_of(plans: Mapping[str, HostPlan], sizes: str) -> list[tuple[str, ...]]:
    """Return the hosts that change, in batches."""
    return batches(tuple(name for name, plan in plans.items() if plan.state == "change"), sizes)


def batches(names: tuple[str, ...], sizes: str) -> list[tuple[str, ...]]:
    """Return the hosts in batches; the last size repeats until no host is left, no size means all at once."""
    wanted = [_size(text.strip(), len(names)) for text in sizes.split(",")] if sizes else [len(names) or 1]
    found: list[tuple[str, ...]] = []
    start = 0
    while start < len(names):
        size = wanted[min(len(found), len(wanted) - 1)]
        found.append(names[start : start + size])
        start += size
    return found


def sizes_after(sizes: str, passed: int) -> str:
    """Return the sizes of the batches after the first `passed` ones."""
    wanted = sizes.split(",")
    return ",".join(wanted[min(passed, len(wanted) - 1) :])


def _size(text: str, total: int) -> int:
    match = re.fullmatch(r"([0-9]{1,18})(%?)", text)
    number = int(match.group(1)) if match else 0
    if match is None or number < 1 or (match.group(2) and number > 100):
        raise BadInputError("GS-806", f"{text!r} is not a batch size", path="--batch")
    return max(1, number * total // 100) if match.group(2) else number


_FILE = "rollout.json"
_INVENTORIES = 50
_LEFT = {"not-started", "refused", "failed", "unreachable", "verify-failed", "interrupted", "postponed"}


class _Kept(Struct, frozen=True):
    """The content of rollout.json."""

    inventory: str
    batch: str
    left: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A stopped rollout with hosts left."""

    run: str
    batch: str
    hosts: tuple[str, ...]


def keep_rollout(
    run: RunDirectory, inventory: str | None, batch: str, outcomes: dict[str, HostOutcome], names: Iterable[str]
) -> None:
    """Record which of these hosts are left, and the sizes of the remaining batches."""
    left = tuple(name for name in names if name not in outcomes or outcomes[name].state in _LEFT)
    run.write(_FILE, _Kept(inventory=_place(inventory), batch=batch, left=left))


def stopped_rollout(home: Path, inventory: str | None) -> Stopped:
    """Return the newest rollout over this inventory; raise if it has no hosts left."""
    run, record = _newest(runs_in_order(home)).get(_place(inventory), (None, None))
    if run is not None and record is not None and record.left:
        return Stopped(run=run.name, batch=record.batch, hosts=record.left)
    raise BadInputError(
        "GS-814", f"no rollout over {inventory or 'this machine'} has stopped with hosts left to do", path="--resume"
    )


def unfinished(runs: list[Path]) -> list[Path]:
    """Return the runs that `stopped_rollout` would return, of the last inventories that have one."""
    return [run for run, record in _newest(runs).values() if record.left][:_INVENTORIES]


def _newest(runs: list[Path]) -> dict[str, tuple[Path, _Kept]]:
    """Return the newest rollout of each inventory, newest first."""
    found: dict[str, tuple[Path, _Kept]] = {}
    for run in reversed(runs):
        if record := kept_in(run / _FILE, _Kept):
            found.setdefault(record.inventory, (run, record))
    return found


def _place(inventory: str | None) -> str:
    """Return the key of an inventory, the same from every folder."""
    return os.path.realpath(inventory) if inventory and "," not in inventory else inventory or ""
