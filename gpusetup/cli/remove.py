"""Restore hosts to the state before the first apply: packages, repositories, keys, files, initramfs, services.

gpusetup first shows what it would remove; it acts only with --yes or after your yes on the terminal. Files that it
changed return to their old content. A second run changes nothing.

examples:
  gpusetup remove inventory.ini               shows what it would remove
  gpusetup remove inventory.ini --yes
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import convert
from msgspec.structs import replace

from gpusetup.cli import options, output, streams
from gpusetup.cli.grammar import tables
from gpusetup.cli.output import wrapped
from gpusetup.cli.plan import failure_lines, refusal_lines
from gpusetup.drive.causes import tally
from gpusetup.drive.progress import watch
from gpusetup.errors import Exit, gravest

if TYPE_CHECKING:
    import argparse

    from gpusetup.drive.events import HostProgress
    from gpusetup.drive.playbook import Session
    from gpusetup.model.facts import Facts, HostFacts
    from gpusetup.model.lifecycle import HostRemoval, Removal, Removed

DEADLINE = 6 * 3600.0
_EXITS = {
    "planned": Exit.PENDING, "done": Exit.DONE, "unchanged": Exit.DONE, "pending-reboot": Exit.PENDING,
    "failed": Exit.FAILED, "unreachable": Exit.UNREACHABLE, "interrupted": Exit.INTERRUPTED,
    "left-over": Exit.PENDING, "refused": Exit.REFUSED,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    parser.add_argument(
        "--yes", "-y", action="store_true", help="do it; without a terminal and without this option, only show"
    )
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Show what would go, ask, remove, report."""
    from gpusetup.cli.session import agreed, open_session
    from gpusetup.facts import fleet

    session = open_session(arguments)
    with streams.terminated_is_interrupted():
        with watch(output.aside(), phase="facts") as observer:
            facts = fleet.look(session, candidates=False, observer=observer).facts
        hosts = _planned(facts)
        wanted = [name for name, host in hosts.items() if host.state == "planned"]
        shown = removal_text(_document(session, hosts, done=False))
        done = bool(wanted) and (arguments.yes or agreed(arguments, shown, "remove all of this?"))
        if done:
            hosts |= _remove(session, facts, hosts, wanted)
    removed = _document(session, hosts, done=done)
    session.run.write("removed.json", removed)
    output.answer(arguments.format, removed, removal_text(removed), arguments.out)
    if wanted and not done:
        print("nothing was changed; run it with --yes to do it", file=sys.stderr)
    return gravest([_exit_of(host) for host in hosts.values()])


def _planned(facts: Facts) -> dict[str, HostRemoval]:
    from gpusetup.components.record import forgotten, hidden
    from gpusetup.model.lifecycle import HostRemoval
    from gpusetup.plan.lifecycle import removal_of, unknown_layouts
    from gpusetup.plan.preflight import refusal_not_seen
    from gpusetup.rollout.looks import twins

    hosts = {}
    double = twins(facts.hosts)
    for name, host in facts.hosts.items():
        removal = removal_of(host)
        refusal = double.get(name) or hidden(host)
        if refusal is not None:
            hosts[name] = HostRemoval(state="refused", refusals=(refusal,), simulated=host.simulated)
        else:
            state: Literal["unchanged", "planned"] = "unchanged" if removal is None else "planned"
            unknown = tuple(filter(None, [forgotten(host), *unknown_layouts(host)]))
            hosts[name] = HostRemoval(state=state, removal=removal, simulated=host.simulated, warnings=unknown)
    for name, failure in facts.failures.items():
        unreachable = failure.exit == Exit.UNREACHABLE
        refusals = (refusal_not_seen(failure),)
        hosts[name] = HostRemoval(state="unreachable" if unreachable else "refused", refusals=refusals)
    return hosts


def _document(session: Session, hosts: dict[str, HostRemoval], *, done: bool) -> Removed:
    from gpusetup.model.lifecycle import Removed

    ok = all(_exit_of(host) is Exit.DONE for host in hosts.values())
    return Removed(ok=ok, done=done, run=session.run.id, log=str(session.run.log), hosts=hosts)


def _remove(session: Session, facts: Facts, hosts: dict[str, HostRemoval], names: list[str]) -> dict[str, HostRemoval]:
    from gpusetup.drive.audit import on_record
    from gpusetup.drive.inventory import write_overlay
    from gpusetup.drive.playbook import run_playbook
    from gpusetup.drive.rundir import occupy, state_home
    from gpusetup.plan.actions import for_manager
    from gpusetup.rollout.looks import owner_of

    owner = owner_of(session, len(names))
    variables = {name: replace(for_manager(facts.hosts[name]), gpu_state_owner=owner) for name in names}
    overlay = write_overlay(session.run.overlay, variables)
    started = time.monotonic()
    found: dict[str, HostRemoval] = {}

    def fared() -> dict[str, str]:
        return {name: found[name].state if name in found else "not known" for name in names}

    with (
        on_record(session, "remove", dict.fromkeys(names, "all that gpusetup brought"), fared, output.warn),
        occupy(state_home(session.environment), names, "remove"),
        watch(output.aside(), phase="remove") as observer,
    ):
        done = run_playbook(session, "remove", deadline=DEADLINE, overlay=overlay, observer=observer, partial=True)
        seconds = time.monotonic() - started
        for name in names:
            host = done.track.host(name)
            found[name] = _outcome(hosts[name], facts.hosts[name], host, seconds, interrupted=done.interrupted)
    return found


def _outcome(
    before: HostRemoval, facts: HostFacts, host: HostProgress, seconds: float, *, interrupted: bool
) -> HostRemoval:
    from gpusetup.model.lifecycle import PackageChanges
    from gpusetup.plan.lifecycle import pending_reboot

    told = host.data.get("gpu_state", {})
    common: dict[str, Any] = {"changed": host.changed, "seconds": round(seconds, 1)}
    if host.failure is not None:
        common |= {"state": host.failure.state(host.changed), "failed_at": host.failure.task}
        return replace(before, failure=host.failure.trouble, **common)
    if "left_over" not in told:
        state = "interrupted" if interrupted else "failed"
        return replace(before, state=state, failed_at=host.task or "between two steps", **common)
    pending = pending_reboot(facts, before.removal) if before.removal is not None else ""
    ours = {kind: tuple(names) for kind, names in (told.get("ours") or {}).items()}
    state = "left-over" if ours else "pending-reboot" if pending else "done"
    return replace(
        before,
        state=state,
        pending=(pending,) if pending else (),
        ours=ours,
        saved={**(host.data.get("gpu_packages", {}).get("saved") or {}), **(told.get("saved") or {})},
        kept=tuple(told.get("kept") or ()),
        left_over=convert(told["left_over"], PackageChanges),
        **common,
    )


def _exit_of(host: HostRemoval) -> Exit:
    if host.refusals:
        return gravest([Exit(refusal.exit) for refusal in host.refusals])
    return _EXITS[host.state]


_STATES: dict[str, str] = tables()["removals"]


def removal_text(removed: Removed) -> str:
    """Return the answer as text."""
    lines = [_block(name, host) for name, host in removed.hosts.items()]
    states = [host.state for host in removed.hosts.values()]
    return "\n".join([*lines, "", tally(states), f"log: {removed.log}"]) + "\n"


def _block(name: str, host: HostRemoval) -> str:
    lines = [f"{name}: {_STATES[host.state]}" + (" (simulated GPU)" if host.simulated else "")]
    if host.removal is not None:
        lines += _changes(host.removal)
    for refusal in host.refusals:
        lines += refusal_lines(refusal)
    lines += failure_lines(host)
    for text in host.pending:
        lines += wrapped(f"pending  reboot: {text}")
    for kind, names in sorted(host.ours.items()):
        lines += wrapped(f"left     {kind}: {', '.join(names)}")
    if host.ours:
        how = "undo these by hand, or make the packages available; then run the same command again"
        lines += wrapped(f"hint     {how}. To keep them: rm -r /var/lib/gpusetup on the host")
    for path, place in sorted(host.saved.items()):
        lines += wrapped(f"saved    {path} was changed after gpusetup wrote it; that version is {place}")
    for path in host.kept:
        lines += wrapped(f"kept     {path} is no longer as gpusetup left it and stays")
    for text in host.warnings:
        lines += wrapped(f"warning  {text}")
    for kind, names in sorted(msgspec.structs.asdict(host.left_over).items()):
        if not names:
            continue
        lines += wrapped(f"differs  {kind} since the apply, not by gpusetup: {', '.join(sorted(names))}")
    return "\n".join(lines)


def _changes(removal: Removal) -> list[str]:
    rows = (
        ("packages", "go", removal.packages),
        ("packages", "come back", removal.restored),
        ("holds", "end", removal.holds),
        ("files", "go", removal.files_deleted),
        ("files", "come back", removal.files_restored),
        ("links", "as before", removal.links),
        ("services", "as before", removal.services),
        ("driver", "uninstalled", (f"{removal.runfile} of the .run installer",) if removal.runfile else ()),
        ("defaults", "as before", removal.alternatives),
        ("streams", "as before", removal.streams),
        ("MIG", "as before", removal.mig),
        ("boot", "arguments go", removal.arguments),
        ("boot", "rebuilt", ("the initramfs",) if removal.initramfs else ()),
        ("python", "goes", (removal.python,) if removal.python else ()),
        ("python", "go", removal.environments),
        ("record", "goes", (removal.history,) if removal.history else ()),
    )
    return [line for kind, how, names in rows if names for line in wrapped(f"{kind:<8} {how}: {', '.join(names)}")]
