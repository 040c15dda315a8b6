"""What an apply left against what the host is now, and what mends each difference: the judge's verdict as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.model.lifecycle import Difference
from gpusetup.plan import judge
from gpusetup.plan.recorded import record_of

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts

__all__ = ["applied_id", "differences"]


def applied_id(facts: HostFacts) -> str:
    """Return the id of the apply on record, nothing when there is none."""
    return record_of(facts).apply.id


def differences(facts: HostFacts) -> tuple[Difference, ...]:
    """Return everything that is no longer as the last apply left it."""
    found = judge.drift.differences(judge.probed(facts), judge.record(facts))
    return tuple(msgspec.convert(item._asdict(), Difference) for item in found)
