"""How a fleet is changed piece by piece: `1,10%,50%` is one host, then a tenth, then half at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.model.plan import HostPlan


def batches_of(plans: Mapping[str, HostPlan], sizes: str) -> list[tuple[str, ...]]:
    """Return the hosts that change, in their batches."""
    return batches(tuple(name for name, plan in plans.items() if plan.state == "change"), sizes)


def batches(names: tuple[str, ...], sizes: str) -> list[tuple[str, ...]]:
    """Return the hosts in their batches; the last size goes on until no host is left, no size means all at once."""
    wanted = [_size(text.strip(), len(names)) for text in sizes.split(",")] if sizes else [len(names) or 1]
    found: list[tuple[str, ...]] = []
    start = 0
    while start < len(names):
        size = wanted[min(len(found), len(wanted) - 1)]
        found.append(names[start : start + size])
        start += size
    return found


def sizes_after(sizes: str, passed: int) -> str:
    """Return the sizes that a rollout goes on with after so many batches."""
    wanted = sizes.split(",")
    return ",".join(wanted[min(passed, len(wanted) - 1) :])


def _size(text: str, total: int) -> int:
    match = re.fullmatch(r"([0-9]{1,6})(%?)", text)
    number = int(match.group(1)) if match else 0
    if match is None or number < 1 or (match.group(2) and number > 100):
        raise BadInputError(
            "GS-806",
            f"{text!r} is not a batch size",
            path="--batch",
            hint="give a number of hosts or a percentage, or several with commas: --batch 1,10%,50%",
        )
    return max(1, number * total // 100) if match.group(2) else number
