"""Whether what exports the host's figures runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.components.judge import names
from gpusetup.components.record import exporter_of, record_of
from gpusetup.doctor.look import Look, Outcome, fine, notice

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["exporters"]


def exporters(look: Look) -> Outcome:
    """Look at the units that export figures: those that failed, and those that gpusetup started and do not run."""
    silent = list(_silent(look))
    wanted = exporter_of(look.facts)
    if silent:
        what = f"{wanted.kind} " if wanted is not None else ""
        return notice("exporter-silent", f"{what}exports nothing: {', '.join(silent)}", *silent)
    if wanted is None:
        return fine("nothing that gpusetup set up exports figures")
    return fine(f"{wanted.kind}{f' on {wanted.listen}' if wanted.listen else ''}")


def _silent(look: Look) -> Iterator[str]:
    recorded = record_of(look.facts).services
    for service in look.facts.services.values():
        if service.unit not in names.MONITORING_UNITS:
            continue
        stopped = service.unit in recorded and service.active not in (None, "active", "activating")
        if service.active == "failed" or stopped:
            yield f"{service.unit} is {service.active}"
