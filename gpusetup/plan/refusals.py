"""A failure as a reason why one host is left as it is: the same five things, wherever it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.plan import Refusal

if TYPE_CHECKING:
    from gpusetup.errors import GpuSetupError
    from gpusetup.model.facts import Failure

__all__ = ["refusal_not_seen", "refusal_of"]


def refusal_of(error: GpuSetupError, note: str = "") -> Refusal:
    """Return what an error means for the one host that it is about; `note` stands for the error's own."""
    return Refusal(
        reference=error.reference,
        message=error.message,
        note=note or error.note,
        hint=error.hint,
        source=error.link,
        exit=int(error.exit),
    )


def refusal_not_seen(failure: Failure) -> Refusal:
    """Return what it means that a host could not be looked at."""
    return Refusal(reference=failure.reference, message=failure.message, hint=failure.hint, exit=failure.exit)
