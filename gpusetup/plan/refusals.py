"""A failure as a reason why one host is left as it is: the same five things, wherever it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import Exit
from gpusetup.model.plan import Refusal

if TYPE_CHECKING:
    from gpusetup.errors import GpuSetupError
    from gpusetup.model.facts import Failure
    from gpusetup.model.preview import Preview

__all__ = ["findings", "refusal_not_seen", "refusal_of"]


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


def findings(answer: Preview) -> tuple[Refusal, ...]:
    """Return the preview's refusals."""
    return tuple(
        Refusal(
            reference=item.reference or "GS-329",
            message=item.text,
            hint=item.hint or _hint(item.text),
            exit=int(Exit.UNREACHABLE) if item.id == "repository" else int(Exit.REFUSED),
        )
        for item in answer.findings
        if item.level == "refuse"
    )


def _hint(text: str) -> str:
    if "nothing provides dkms" in text:
        return (
            "dkms comes from EPEL: dnf install epel-release on the host, or name a mirror of it in "
            "gpusetup_extra_sources; a RHEL needs its subscription for CodeReady Builder too"
        )
    return "" if not text else "nothing was changed; the repositories conflict with the installed packages"
