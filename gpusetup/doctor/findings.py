"""From matches in a text to findings that can be told: the root first, what it explains left out, numbers decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.doctor.advice import details
from gpusetup.doctor.builds import filled
from gpusetup.doctor.catalogue import PAGES, catalogue
from gpusetup.doctor.decode import bare_numbers
from gpusetup.doctor.library_names import fixes_for
from gpusetup.doctor.recovering import recovery_of
from gpusetup.doctor.scan import Match, scan, scan_chunks
from gpusetup.model.diagnosis import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.model.diagnosis import Cause

__all__ = ["diagnose_chunks", "diagnose_text", "finding_of", "findings"]

_WEIGHT = {"root": 0, "symptom": 1, "notice": 2}
_SHORT = 200
"""A text up to this long may be a bare error number that somebody asks about."""


def finding_of(
    cause: Cause, evidence: Iterable[str] = (), groups: dict[str, str] | None = None, manager: str | None = None
) -> Finding:
    """Tell a cause, with what its numbers mean. `manager`: the machine's package manager; None: this machine's."""
    shown = tuple(evidence)
    return Finding(
        cause=cause.id,
        title=cause.title,
        kind=cause.kind,
        explanation=filled(cause.explanation),
        evidence=shown,
        details=details(cause.id, groups or {}),
        checks=cause.checks,
        fixes=fixes_for(cause.id, groups or {}, cause.fixes, manager),
        recovery=recovery_of(cause, groups or {}, shown),
        page=f"{PAGES}/{cause.id}.md",
    )


def _told(match: Match) -> Finding:
    import msgspec

    finding = finding_of(catalogue()[match.cause], match.evidence, match.groups)
    return msgspec.structs.replace(finding, line=match.line, count=match.times)


def findings(matches: Iterable[Match]) -> tuple[Finding, ...]:
    """Return what was found, the most telling first; what a found cause explains is left out."""
    found = {match.cause: match for match in matches if match.cause in catalogue()}
    hidden = {name for cause in found for name in catalogue()[cause].hides}
    left = [match for match in found.values() if match.cause not in hidden] or list(found.values())
    left.sort(key=lambda match: (_WEIGHT[catalogue()[match.cause].kind], match.line))
    return tuple(_told(match) for match in left)


def diagnose_text(text: str) -> tuple[Finding, ...]:
    """Recognise a message that somebody typed or pasted; a bare number counts as one."""
    matches = scan(text)
    if not matches and len(text) <= _SHORT:
        matches = [Match(cause, 1, (text.strip(),), groups, 1) for cause, groups in bare_numbers(text)]
    return findings(matches)


def diagnose_chunks(chunks: Iterator[bytes]) -> tuple[Finding, ...]:
    """Recognise the messages of a log."""
    return findings(scan_chunks(chunks))
