"""Return hosts to their last verified state, or to any earlier apply in their history.

Packages, holds and settings change in one transaction, and gpusetup verifies the host again. The inventory stays: the
next plain apply goes forward again.

examples:
  gpusetup rollback --list inventory.ini          all applies, host by host
  gpusetup rollback inventory.ini --limit gpu07
  gpusetup rollback --to 20261121T031500Z-ab12cd inventory.ini
"""

import argparse
from typing import Any

import msgspec

from gpusetup.cli import options, output, streams
from gpusetup.cli.apply import add_batches, answer, applying
from gpusetup.cli.plan import Progress, recorded_stack, refusal_lines
from gpusetup.cli.requests import add_reboot, add_way_back
from gpusetup.components.record import read_applied
from gpusetup.drive.playbook import PlaybookRun, Session
from gpusetup.drive.progress import watch
from gpusetup.errors import BadInputError, Exit, PreflightError, gravest
from gpusetup.facts.fleet import failure_of
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import Applied
from gpusetup.model.facts import HostFacts
from gpusetup.model.lifecycle import History, HostHistory, Listed, Past
from gpusetup.model.plan import Refusal
from gpusetup.plan.preflight import refusal_not_seen

DEADLINE = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    group = parser.add_argument_group("rollback")
    group.add_argument("--list", action="store_true", help="show what is on record; change nothing")
    group.add_argument("--to", metavar="ID", default="", help="the apply to return to; the start of its ID is enough")
    group.add_argument("--check", action="store_true", help="show what would be done; change nothing")
    group.add_argument("--verify", choices=("auto", "always", "never"), default="auto", help="default: %(default)s")
    add_reboot(group)
    add_way_back(group)
    add_batches(parser)
    options.add_draining(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Read the hosts' histories; list them, or go back."""
    from gpusetup.cli.session import open_session
    from gpusetup.rollout.looks import plan_hosts
    from gpusetup.rollout.options import Planning, Wishes
    from gpusetup.rollout.waves import carry_out

    if arguments.list:
        options.refuse_beside(arguments, "--list", "it changes nothing", "--to", "--check", "--batch", "--reboot")
    with streams.terminated_is_interrupted():
        session = open_session(arguments)
        read = _read(session)
        if arguments.list:
            return _list(arguments, read)

        def recorded(name: str, _facts: HostFacts) -> Applied:
            target = _target(read, name, arguments)
            output.say(f"{name}: back to {target.id}")
            return target.lock

        names = ("reboot", "no_way_back", "older_source", "despite_maintenance")
        asked = {name: getattr(arguments, name) for name in names}
        how = Planning(wishes=Wishes(**asked), recorded=recorded)
        rollout = plan_hosts(how, session, matrix(), Progress())
        applied = carry_out(applying(arguments, keep=""), rollout)
    return answer(arguments, applied)


def _target(read: PlaybookRun, name: str, arguments: argparse.Namespace) -> Past:
    from gpusetup.plan.lifecycle import choose

    for unread in _listed(read, name, arguments.inventory or "").refusals:
        raise PreflightError(unread.reference, unread.message, hint=unread.hint)
    current, history = past_of(read.data(name, "gpu_state") or {}, name)
    return choose(history, current, arguments.to)


def _read(session: Session) -> PlaybookRun:
    from gpusetup.drive.playbook import run_playbook

    with watch(output.aside(), phase="history") as observer:
        return run_playbook(session, "history", deadline=DEADLINE, observer=observer)


def past_of(answer: dict[str, Any], name: str) -> tuple[str, tuple[Past, ...]]:
    """Return the ID of a host's current apply, and all recorded applies."""
    try:
        told = msgspec.convert(answer.get("history") or [], list[dict[str, Any]])
        history = msgspec.convert([{**past, "lock": {}} for past in told], tuple[Past, ...])
    except msgspec.ValidationError as error:
        raise BadInputError("GS-805", f"the history of {name} cannot be used: {error}", path=name) from error
    locks = [read_applied(past.get("lock")) for past in told]
    history = tuple(msgspec.structs.replace(past, lock=lock) for past, lock in zip(history, locks, strict=True))
    return str(answer.get("current") or ""), history


def _list(arguments: argparse.Namespace, read: PlaybookRun) -> Exit:
    hosts = {name: _listed(read, name, arguments.inventory or "") for name in read.track.hosts}
    codes = [Exit(refusal.exit) for host in hosts.values() for refusal in host.refusals]
    history = History(ok=not codes, hosts=hosts)
    output.answer(arguments.format, history, lambda: _text(history), arguments.out)
    return gravest(codes)


def _listed(read: PlaybookRun, name: str, inventory: str) -> HostHistory:
    if read.track.host(name).failure is not None:
        return HostHistory(refusals=(refusal_not_seen(failure_of(read.track.host(name), inventory)),))
    try:
        current, history = past_of(read.data(name, "gpu_state") or {}, name)
    except BadInputError as error:
        return HostHistory(refusals=(Refusal(reference="GS-805", message=str(error), exit=int(Exit.REFUSED)),))
    applies = tuple(
        Listed(
            id=past.id, finished=past.finished, stack=recorded_stack(past.lock), verified=past.verified,
            packages=past.packages, simulated=past.simulated,
        )
        for past in history
    )  # fmt: skip
    return HostHistory(current=current, applies=applies)


def _text(history: History) -> str:
    lines = []
    for name, host in history.hosts.items():
        lines.append(f"{name}: " + (f"{len(host.applies)} on record" if host.applies else "nothing on record"))
        for past in host.applies:
            verdict = (past.verified.verdict if past.verified is not None else "") or "not verified"
            mark = "now" if past.id == host.current else "   "
            told = f"{mark} {past.id}  {verdict:<12}  {past.stack or 'by the roles without gpusetup'}"
            lines += output.wrapped(told, rest=" " * 44)
        for refusal in host.refusals:
            lines += refusal_lines(refusal)
    return "\n".join(lines) + "\n"
