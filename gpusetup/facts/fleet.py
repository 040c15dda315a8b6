"""Facts of a fleet: runs one playbook and reads each host's answer or failure."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusetup.drive.events import HostProgress
from gpusetup.drive.playbook import Observer, PlaybookRun, Session, run_playbook
from gpusetup.errors import BadInputError, Exit
from gpusetup.facts.collect import Lookup, from_probe
from gpusetup.model.facts import Facts, Failure, HostFacts
from gpusetup.model.variables import RoleVariables

ACTION = "gpu_facts"
DEADLINE = 600.0


@dataclass(frozen=True)
class FleetFacts:
    """The facts of a fleet; `captures` only if asked for."""

    facts: Facts
    run: PlaybookRun
    captures: dict[str, dict[str, Any]] = field(default_factory=dict)


def look(
    session: Session,
    lookup: Lookup | None = None,
    *,
    candidates: bool = True,
    record: bool = False,
    symptoms: bool = False,
    overlay: Path | None = None,
    observer: Observer | None = None,
    deadline: float = DEADLINE,
) -> FleetFacts:
    """Return the facts of all hosts of the session's inventory."""
    variables = RoleVariables(gpusetup_candidates=candidates, gpusetup_record=record, gpusetup_symptoms=symptoms)
    run = run_playbook(session, "facts", deadline=deadline, overlay=overlay, variables=variables, observer=observer)
    return read(run, lookup, session.reach.inventory or "")


def read(run: PlaybookRun, lookup: Lookup | None = None, inventory: str = "") -> FleetFacts:
    """Return the hosts' facts and failures from a finished playbook."""
    hosts: dict[str, HostFacts] = {}
    failures: dict[str, Failure] = {}
    captures: dict[str, dict[str, Any]] = {}
    for name, progress in run.track.hosts.items():
        answer = run.data(name, ACTION)
        if progress.failure is not None or answer is None or "facts" not in answer:
            failures[name] = failure_of(progress, inventory)
            continue
        try:
            hosts[name] = from_probe(answer["facts"], name, lookup)
        except BadInputError as error:
            failures[name] = Failure(
                reference=error.reference, message=error.message, hint=error.hint, exit=int(error.exit)
            )
            continue
        if isinstance(answer.get("capture"), dict):
            captures[name] = answer["capture"]
    return FleetFacts(Facts(ok=not failures, hosts=hosts, failures=failures), run, captures)


def failure_of(progress: HostProgress, inventory: str) -> Failure:
    """Return why a host gave no answer, and what to do about it."""
    if progress.failure is None:
        return Failure(reference="GS-309", message="the host was skipped", exit=int(Exit.UNREACHABLE))
    message = " ".join(progress.failure.message.split())[:600]
    if progress.failure.refused:
        return Failure(
            reference="GS-404", message=message, hint="give it another name or address", exit=int(Exit.BAD_INPUT)
        )
    if progress.failure.unreachable:
        return Failure(
            reference="GS-308",
            message=f"cannot be reached: {message}",
            hint=progress.failure.way_out(inventory),
            exit=int(Exit.UNREACHABLE),
        )
    own = progress.failure.trouble
    if own.reference:
        told = "; ".join(str(part) for part in (own.message, own.context, own.note) if part)
        return Failure(reference=own.reference, message=told, hint=own.hint or "", exit=int(Exit.REFUSED))
    message = re.sub(r".*?((?:pyenv|asdf): .*?command not found).*", r"\1", message)
    return Failure(
        reference="GS-309",
        message=f"could not be examined: {message}",
        hint=progress.failure.way_out(inventory),
        exit=int(Exit.REFUSED),
    )
