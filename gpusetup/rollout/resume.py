"""What a rollout leaves behind, so that it can go on where it stopped: no new canary, nobody looked at twice."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpusetup.drive.rundir import RunDirectory
    from gpusetup.model.run import HostOutcome

__all__ = ["Stopped", "keep_rollout", "stopped_rollout"]

_FILE = "rollout.json"
_LEFT = {"not-started", "failed", "unreachable", "verify-failed", "interrupted", "postponed"}


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A rollout that has hosts left."""

    run: str
    batch: str
    hosts: tuple[str, ...]


def keep_rollout(
    run: RunDirectory,
    inventory: str | None,
    batch: str,
    outcomes: dict[str, HostOutcome],
    names: Iterable[str],
) -> None:
    """Write down who is left of these hosts, and the sizes of the batches that are still to come."""
    left = [name for name in names if name not in outcomes or outcomes[name].state in _LEFT]
    run.write(_FILE, {"inventory": _place(inventory), "batch": batch, "left": left})


def stopped_rollout(home: Path, inventory: str | None) -> Stopped:
    """Return the newest rollout over this inventory, which must have hosts left."""
    for path in sorted(home.glob(f"runs/*/{_FILE}"), reverse=True):
        try:
            told: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError:
            continue
        if told.get("inventory") != _place(inventory):
            continue
        if not told["left"]:
            break
        return Stopped(run=path.parent.name, batch=str(told["batch"]), hosts=tuple(told["left"]))
    raise BadInputError(
        "GS-814",
        f"no rollout over {inventory or 'this machine'} has stopped with hosts left",
        path="--resume",
        hint="the same command without --resume looks at all hosts and changes what is to change",
    )


def _place(inventory: str | None) -> str:
    """An inventory is the same one from every folder."""
    return os.path.realpath(inventory) if inventory and "," not in inventory else inventory or ""
