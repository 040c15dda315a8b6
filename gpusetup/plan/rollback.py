"""Which of the applies on record to go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import NO_LOCK

if TYPE_CHECKING:
    from gpusetup.model.lifecycle import Past
    from gpusetup.model.package import PackageSet

__all__ = ["choose", "is_verified"]

_ONLY_WHERE_SAID = ("settings", "interpreter")
"""What older records lack without saying that it was none."""


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
    """Tell whether two applies left the same state; what an older record does not say makes no difference."""
    if left.lock.stack != right.lock.stack or left.packages != right.packages:
        return False
    one, other = left.lock.wanted, right.lock.wanted
    if one is None or other is None:
        return one is other
    return all(_alike(name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)


def _alike(name: str, one: Any, other: Any) -> bool:
    if name in _ONLY_WHERE_SAID and UNSET in (one, other):
        return True
    if name == "packages":
        return _wish(one) == _wish(other)
    if name == "monitoring":
        one, other = (exporter and replace(exporter, why="") for exporter in (one, other))
    return (one or None) == (other or None)


def _wish(packages: PackageSet | None) -> PackageSet | None:
    """Return what was wished of packages, without what depends on the packages that were there before."""
    return packages and replace(packages, prerequisites=(), remove=(), may_remove=(), enable=(), replace=())
