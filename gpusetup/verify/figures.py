"""From measured passes and a bound to the part of a check: the better of two passes counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusetup.verify.expected import Bound

__all__ = ["bounded"]

# NVLS reduces inside the switch and may pass the links' own rate a little; clocks may pass the listed one.
_CREDIBLE = 1.15


def bounded(
    subject: str,
    passes: Sequence[float],
    bound: Bound | None,
    unit: str,
    *,
    gentle: bool = False,
    may_fail: bool = True,
) -> Item:
    """Judge a bandwidth: a fail needs both passes below the floor, so the better one is compared."""
    best = max(passes)
    if gentle:
        return Item(
            subject=subject,
            verdict="warn",
            text=f"{best:.4g} {unit}, measured at low load beside another job, not judged",
            measured=best,
        )
    if bound is None:
        return Item(
            subject=subject,
            verdict="skip",
            text=f"{best:.4g} {unit}, no reference value; compare with --baseline",
            measured=best,
        )
    if best > _CREDIBLE * bound.theory:
        text = f"{best:.4g} {unit} exceeds what the hardware can do ({bound.theory:.4g}): the measurement is invalid"
        return Item(subject=subject, verdict="fail", text=text, measured=best, expected=bound.expected)
    if best < bound.fail and may_fail:
        both = f" in {len(passes)} passes" if len(passes) > 1 else ""
        return Item(
            subject=subject,
            verdict="fail",
            text=f"{best:.4g} {unit}{both}, at least {bound.fail:.4g} is expected, {bound.expected:.4g} is usual",
            measured=best,
            expected=bound.expected,
            limit=bound.fail,
        )
    if best < bound.warn:
        return Item(
            subject=subject,
            verdict="warn",
            text=f"{best:.4g} {unit}, {bound.expected:.4g} is usual",
            measured=best,
            expected=bound.expected,
            limit=bound.warn,
        )
    return Item(subject=subject, verdict="pass", measured=best, expected=bound.expected, limit=bound.fail)
