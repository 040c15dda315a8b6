"""Bring hosts to one proven stack: look, plan, check, install, verify, report. Safe to repeat; resumes after a cut.

Without INVENTORY this machine, which is never rebooted without --reboot. A second run changes nothing.

examples:
  gpusetup apply inventory.ini
  gpusetup apply inventory.ini -w 'torch==2.6.*' --limit training
  gpusetup apply inventory.ini --check         what would change, tried on the hosts without changing them
  gpusetup plan inventory.ini --format json --out plan.json && gpusetup apply inventory.ini --plan plan.json
  gpusetup apply --lock gpu.lock.json          exactly what the lock says
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpusetup.cli import options, output
from gpusetup.cli.wishes import add_wishes
from gpusetup.errors import BadInputError, Exit, PreflightError, gravest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpusetup.cli.rollout import Rollout
    from gpusetup.drive.playbook import PlaybookRun, Session
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.plan import HostPlan
    from gpusetup.model.run import Applied, HostOutcome

__all__ = ["add_arguments", "add_batches", "answer", "carry_out", "run", "terminated_is_interrupted"]

APPLY_DEADLINE = 6 * 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    add_wishes(parser)
    group = parser.add_argument_group("apply")
    exact = group.add_mutually_exclusive_group()
    exact.add_argument("--plan", metavar="FILE", help="carry out this plan, refused where a host has changed since")
    exact.add_argument("--lock", metavar="FILE", help="apply exactly what this lock says")
    exact.add_argument("--recorded", action="store_true", help="bring each host back to what was applied to it last")
    group.add_argument(
        "--keep-driver", action="store_true", help="with --lock: a working driver that fits all the rest of it stays"
    )
    group.add_argument(
        "--stage", choices=("image",),
        help="with --lock: prepare an image; its GPUs are the lock's, nothing is verified, nothing reboots",
    )  # fmt: skip
    group.add_argument("--check", action="store_true", help="try it without changing anything")
    group.add_argument("--verify", choices=("auto", "always", "never"), default="auto", help="default: %(default)s")
    add_batches(parser).add_argument(
        "--resume", action="store_true", help="go on with the last rollout that stopped: its batches, the hosts it left"
    )
    options.add_draining(parser)
    options.add_output(parser)


def add_batches(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add how a fleet is changed piece by piece."""
    group = parser.add_argument_group("fleets")
    group.add_argument(
        "--batch",
        metavar="SIZES",
        default="",
        help="so many hosts at a time, each batch verified before the next begins: 1,10%%,50%%; the last size goes on",
    )
    group.add_argument(
        "--max-fail", type=int, metavar="N", default=0, help="go on with the next batch after up to N failed hosts"
    )
    return group


def run(arguments: argparse.Namespace) -> Exit:
    """Apply and report."""
    from gpusetup.cli.session import open_session
    from gpusetup.matrix.load import matrix

    with terminated_is_interrupted():
        applied = _apply(arguments, open_session(arguments), matrix())
    return answer(arguments, applied)


def answer(arguments: argparse.Namespace, applied: Applied) -> Exit:
    """Print what was done and return what it means."""
    from gpusetup.cli.apply_text import applied_text
    from gpusetup.cli.outcome import exit_of

    text = output.json_text(applied) if arguments.format == "json" else applied_text(applied)
    output.write_answer(text, arguments.out)
    return gravest([exit_of(outcome) for outcome in applied.hosts.values()])


def _apply(arguments: argparse.Namespace, session: Session, matrix: Matrix) -> Applied:
    from gpusetup.cli.lock import load_lock
    from gpusetup.cli.plan import load_plan
    from gpusetup.cli.resume import stopped_rollout
    from gpusetup.cli.rollout import plan_hosts
    from gpusetup.drive.rundir import state_home
    from gpusetup.plan.batches import batches

    batches((), arguments.batch)  # a wrong size is told before anybody looks at the hosts
    lock = load_lock(arguments.lock) if arguments.lock else None
    made = load_plan(arguments.plan) if arguments.plan else None
    recorded = _last_lock if arguments.recorded else None
    if lock is None and (arguments.keep_driver or arguments.stage):
        option = "--stage image" if arguments.stage else "--keep-driver"
        raise BadInputError(
            "GS-346",
            f"{option} is about what a lock says, and there is no --lock",
            path=option,
            hint="make one: gpusetup lock 'torch==2.6.*' --gpu h100 --os ubuntu22.04 --out gpu.lock.json",
        )
    if arguments.stage:
        arguments.verify, arguments.reboot = "never", "never"
    only = None
    if arguments.resume:
        left = stopped_rollout(state_home(session.environment), arguments.inventory)
        only, arguments.batch = left.hosts, arguments.batch or left.batch
        print(f"going on with {left.run}: {len(left.hosts)} host(s) left", file=sys.stderr)
    rollout = plan_hosts(
        arguments, session, matrix, lock=lock, keep_driver=arguments.keep_driver, image=bool(arguments.stage),
        made=made, recorded=recorded, only=only,
    )  # fmt: skip
    return carry_out(arguments, rollout)


def _last_lock(name: str, facts: HostFacts) -> dict[str, Any]:
    lock = (facts.state or {}).get("lock")
    if not isinstance(lock, dict) or not lock:
        raise PreflightError("GS-804", f"nothing that gpusetup applied is on record on {name}", hint="gpusetup apply")
    return lock


def carry_out(arguments: argparse.Namespace, rollout: Rollout) -> Applied:
    """Change the hosts whose plan says so, verify them, and write down what became of each."""
    from gpusetup.cli.draining import draining
    from gpusetup.cli.outcome import exit_of, not_started, planned_only, stopped
    from gpusetup.cli.resume import keep_rollout
    from gpusetup.cli.verification import verify_hosts
    from gpusetup.drive.rundir import occupy, state_home
    from gpusetup.model.run import Applied
    from gpusetup.plan.batches import batches

    session = rollout.session
    changes = {name: plan for name, plan in rollout.plans.items() if plan.state == "change"}
    outcomes = {name: planned_only(plan) for name, plan in rollout.plans.items()}
    waves = batches(tuple(changes), arguments.batch)
    verify = arguments.verify != "never" and not arguments.check
    work = draining(arguments, rollout)
    by_wave = len(waves) > 1 or work.scheduler is not None
    passed = 0

    def keep(known: dict[str, HostOutcome], batches_passed: int) -> None:
        if hasattr(arguments, "resume"):  # what a stopped rollback leaves is not for apply to go on with
            keep_rollout(session.run, arguments, known, rollout.plans if arguments.resume else changes, batches_passed)

    if changes:
        _announce(changes)
        seen: dict[str, HostOutcome] = {}
        with occupy(state_home(session.environment), changes, "apply"):
            keep(seen, 0)
            for number, wave in enumerate(waves, 1):
                if len(waves) > 1:
                    print(f"batch {number} of {len(waves)}: {len(wave)} host(s)", file=sys.stderr)
                wanted = {name: changes[name] for name in wave}
                held = {} if arguments.check else work.take(wanted)
                free = {name: plan for name, plan in wanted.items() if name not in held}
                done = held | (_change(arguments, rollout, free) if free else {})
                if verify and by_wave:
                    done = verify_hosts(rollout, done, always=True)
                seen |= work.give_back(done)
                outcomes |= seen
                left = [name for later in waves[number:] for name in later]
                ended = stopped(outcomes, arguments.max_fail)
                passed = number - ended
                keep(seen, passed)
                if left and ended:
                    outcomes |= {name: not_started(changes[name]) for name in left}
                    break
    if verify:
        verified = {name for wave in waves for name in wave} if by_wave else set()
        rest = {name: outcome for name, outcome in outcomes.items() if name not in verified}
        outcomes |= verify_hosts(rollout, rest, always=arguments.verify == "always")
    if not arguments.check:
        outcomes |= work.left_behind(outcomes)
        keep(outcomes, passed)
    applied = Applied(
        ok=all(exit_of(outcome) is Exit.DONE for outcome in outcomes.values()),
        run=session.run.id,
        log=str(session.run.log),
        seconds={name: round(spent, 1) for name, spent in rollout.seconds.items()},
        matrix=rollout.document().matrix,
        hosts={name: outcomes[name] for name in rollout.plans},
    )
    session.run.write("applied.json", applied)
    return applied


def _change(arguments: argparse.Namespace, rollout: Rollout, changes: dict[str, HostPlan]) -> dict[str, HostOutcome]:
    from gpusetup.cli.outcome import interrupted, outcome_of
    from gpusetup.cli.rollout import phase
    from gpusetup.drive.overlay import write_overlay
    from gpusetup.drive.playbook import run_playbook
    from gpusetup.drive.progress import watch

    session = rollout.session
    variables = {name: plan.variables | _how(rollout, name) for name, plan in changes.items()}
    overlay = write_overlay(session.run.overlay, variables)
    started = time.monotonic()
    with phase(rollout, "apply"), watch(sys.stderr, phase="apply") as observer:
        done: PlaybookRun = run_playbook(
            session,
            "apply",
            deadline=APPLY_DEADLINE,
            overlay=overlay,
            observer=observer,
            check=arguments.check,
            diff=arguments.check,
        )
    seconds = time.monotonic() - started
    outcomes = {}
    for name, plan in changes.items():
        host = done.track.host(name)
        unfinished = done.interrupted and "gpu_result" not in host.data.get("gpu_state", {})
        outcomes[name] = interrupted(plan, host, seconds) if unfinished else outcome_of(plan, host, seconds)
    return outcomes


def _how(rollout: Rollout, name: str) -> dict[str, Any]:
    """Return what this run adds to a host's plan: the preview has looked already; who may reboot."""
    settings, local = rollout.settings[name], rollout.local(name)
    policy = settings.reboot or ("never" if local else "when-needed")
    if rollout.facts[name].display.sessions:
        policy = "never"
    return {
        "gpu_preflight_enabled": False,
        "gpu_packages_fetched": rollout.fetched.get(name, ""),
        "gpu_state_id": rollout.session.run.id,
        "gpu_reboot_policy": policy,
        "gpu_reboot_local": local and policy != "never",
    }


def _announce(changes: dict[str, HostPlan]) -> None:
    """Say what is about to happen, before it does."""
    from gpusetup.cli.plan_text import size_text

    reboots = sum(1 for plan in changes.values() if plan.reboot)
    sizes = [plan.download_bytes or 0 for plan in changes.values()]
    removals = sorted({name for plan in changes.values() for name in plan.removals})
    gone = f"; removes {', '.join(removals[:6])}" + (" …" if len(removals) > 6 else "") if removals else ""
    text = f"{len(changes)} host(s) change, {reboots} may reboot, {size_text(max(sizes))} to download per host at most"
    print(text + gone, file=sys.stderr)
    for name, plan in changes.items():
        for action in plan.actions:
            if action.id == "remove-runfile":
                print(f"{name}: removes {action.what}: {action.why}", file=sys.stderr)


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """A polite kill is a Ctrl-C: it stops cleanly and says what is where."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
