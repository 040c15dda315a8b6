"""Which of the applies on record to go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import NO_LOCK

if TYPE_CHECKING:
    from gpusetup.model.lifecycle import Past

__all__ = ["choose", "is_verified"]


def is_verified(past: Past) -> bool:
    """Tell whether the verification passed, as far as there was a GPU to ask."""
    return past.verified is not None and past.verified.passed


def choose(history: tuple[Past, ...], current: str, wanted: str = "") -> Past:
    """Return the apply to go back to: the one asked for, else the last that verified and is not what the host has now.

    A host whose last apply failed, or did not verify, goes back to the last one that did.
    """
    if wanted:
        return _named(history, wanted)
    now = next((past for past in history if past.id == current), None)
    stands = now if now is not None and is_verified(now) else None
    for past in reversed(history):
        if is_verified(past) and past.lock != NO_LOCK and not (stands is not None and _same(past, stands)):
            return past
    raise PreflightError(
        "GS-802",
        "no earlier verified state",
        note=f"on record: {', '.join(past.id for past in history) or 'none'}",
        hint="gpusetup rollback --list shows them; --to ID goes to an unverified one",
    )


def _named(history: tuple[Past, ...], wanted: str) -> Past:
    found = [past for past in history if past.id == wanted] or [past for past in history if past.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    raise BadInputError(
        "GS-803",
        f"{len(found)} applies on record begin with {wanted}" if found else f"no apply {wanted} on record",
        path="--to",
        note=f"on record: {', '.join(past.id for past in history) or 'none'}",
        hint="gpusetup rollback --list",
    )


def _same(left: Past, right: Past) -> bool:
    return _of(left) == _of(right)


def _of(past: Past) -> tuple[object, ...]:
    """Return what makes one apply another one than the next."""
    wanted = past.lock.wanted
    if wanted is None:
        return past.lock.stack, past.packages
    exporter = wanted.monitoring or None
    return (
        past.lock.stack, past.packages, wanted.mig or (), wanted.imex or None, wanted.desktops or None,
        wanted.environments or (), wanted.gpudirect or None,
        exporter and replace(exporter, why=""),
    )  # fmt: skip
