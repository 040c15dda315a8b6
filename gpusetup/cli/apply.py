"""Bring hosts to one proven stack: check, install, verify, report. Safe to repeat; resumes after an interruption.

Without INVENTORY: this machine, which gpusetup never reboots without --reboot. A second run changes nothing.

examples:
  gpusetup apply inventory.ini
  gpusetup apply inventory.ini -w 'torch==2.6.*' --limit training
  gpusetup apply inventory.ini --check          checked on the hosts, changes nothing
  gpusetup apply inventory.ini --plan plan.json      what `gpusetup plan` wrote
  gpusetup apply --lock gpu.lock.json           exactly what the lock says
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpusetup.cli import options, output
from gpusetup.cli.requests import add_wishes, wishes_of
from gpusetup.drive.causes import counted
from gpusetup.errors import BadInputError, Exit, PreflightError, gravest

if TYPE_CHECKING:
    import argparse

    from gpusetup.drive.playbook import Session
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.applied import Applied as HostLock
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.lifecycle import Applied
    from gpusetup.rollout.options import Applying, Planning


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    options.add_engine(parser)
    add_wishes(parser)
    group = parser.add_argument_group("apply")
    exact = group.add_mutually_exclusive_group()
    exact.add_argument("--plan", metavar="FILE", help="carry out this plan; refuse hosts that have changed since")
    exact.add_argument("--lock", metavar="FILE", help="apply exactly this lock")
    exact.add_argument("--recorded", action="store_true", help="restore what was last applied to each host")
    group.add_argument(
        "--keep-driver", action="store_true", help="with --lock: keep a working driver that fits the rest of the lock"
    )
    group.add_argument(
        "--stage", choices=("image",),
        help="with --lock: prepare an image for the GPUs of the lock; no verification, no reboot",
    )  # fmt: skip
    group.add_argument("--check", action="store_true", help="show what would be done; change nothing")
    group.add_argument("--verify", choices=("auto", "always", "never"), default="auto", help="default: %(default)s")
    add_batches(parser).add_argument(
        "--resume", action="store_true", help="continue the last stopped rollout with the hosts that are left"
    )
    options.add_draining(parser)
    options.add_output(parser, formats=("text", "json", "html"))


def add_batches(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options for changing a fleet in batches; return their group."""
    group = parser.add_argument_group("fleets")
    group.add_argument(
        "--batch",
        metavar="SIZES",
        default="",
        help="hosts per batch, each verified before the next: 1,10%%,50%%; the last size repeats",
    )
    group.add_argument(
        "--max-fail", type=int, metavar="N", default=0, help="continue with the next batch after up to N failed hosts"
    )
    group.add_argument(
        "--max-fail-domain", type=int, metavar="N",
        help="begin no more hosts of one gpusetup_domain (a rack, a switch) after more than N of them failed",
    )  # fmt: skip
    return group


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer's format and file."""

    format: str
    out: str | None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """All settings of an apply, read once from the command line."""

    inventory: str | None
    planning: Planning
    how: Applying
    resume: bool
    answer: Answer


def run(arguments: argparse.Namespace) -> Exit:
    """Apply and report."""
    from gpusetup.cli.session import open_session, terminated_is_interrupted
    from gpusetup.matrix.load import matrix

    asked = _asked(arguments)
    with terminated_is_interrupted():
        applied = _apply(asked, open_session(arguments), matrix())
    return answer(asked.answer, applied)


def answer(how: Answer, applied: Applied) -> Exit:
    """Print what was done and return the exit code."""
    from gpusetup.rollout.outcome import exit_of

    output.write_answer(_answer_text(how, applied), how.out)
    return gravest([exit_of(outcome) for outcome in applied.hosts.values()])


def _answer_text(how: Answer, applied: Applied) -> str:
    if how.format == "json":
        return output.json_text(applied)
    if how.format == "html":
        from datetime import datetime, timezone

        from gpusetup.cli.apply_text import applied_html

        return applied_html(applied, datetime.now(timezone.utc))
    from gpusetup.cli.apply_text import applied_text

    return output.painted(applied_text(applied))


def applying(
    arguments: argparse.Namespace, *, batch: str, keep: Literal["", "anew", "on"], verify: bool = True
) -> Applying:
    """Return how to carry out plans: the arguments of `add_batches` and `options.add_draining`, and these."""
    from gpusetup.rollout.options import Applying, Freeing

    options.check_numbers(arguments, "max_fail", "max_fail_domain", "drain_wait", "busy_wait")
    return Applying(
        check=arguments.check,
        verify=arguments.verify if verify else "never",
        batch=batch,
        max_fail=arguments.max_fail,
        max_fail_domain=arguments.max_fail_domain,
        keep=keep,
        freeing=Freeing(
            drain=arguments.drain,
            undrain=arguments.undrain,
            via=arguments.drain_via,
            drain_minutes=arguments.drain_wait,
            busy_minutes=arguments.busy_wait,
        ),
    )


def _asked(arguments: argparse.Namespace) -> Asked:
    from dataclasses import replace

    from gpusetup.cli.lock import load_lock
    from gpusetup.cli.plan import load_plan
    from gpusetup.rollout.batches import batches
    from gpusetup.rollout.options import Planning

    batches((), arguments.batch)  # reject a wrong size before contacting hosts
    planning = Planning(
        wishes=wishes_of(arguments),
        lock=load_lock(arguments.lock) if arguments.lock else None,
        keep_driver=arguments.keep_driver,
        image=bool(arguments.stage),
        made=load_plan(arguments.plan) if arguments.plan else None,
        recorded=_last_lock if arguments.recorded else None,
    )
    if planning.lock is None and (planning.keep_driver or planning.image):
        option = "--stage image" if planning.image else "--keep-driver"
        raise BadInputError("GS-346", f"{option} needs --lock", path=option)
    if planning.image:
        planning = replace(planning, wishes=replace(planning.wishes, reboot="never"))
    keep: Literal["anew", "on"] = "on" if arguments.resume else "anew"
    return Asked(
        inventory=arguments.inventory,
        planning=planning,
        how=applying(arguments, batch=arguments.batch, keep=keep, verify=not planning.image),
        resume=arguments.resume,
        answer=Answer(format=arguments.format, out=arguments.out),
    )


def _apply(asked: Asked, session: Session, matrix: Matrix) -> Applied:
    from dataclasses import replace

    from gpusetup.cli.plan import Progress
    from gpusetup.drive.rundir import state_home
    from gpusetup.rollout.batches import stopped_rollout
    from gpusetup.rollout.looks import plan_hosts
    from gpusetup.rollout.waves import carry_out

    planning, how = asked.planning, asked.how
    if asked.resume:
        left = stopped_rollout(state_home(session.environment), asked.inventory)
        planning, how = replace(planning, only=left.hosts), replace(how, batch=how.batch or left.batch)
        output.say(f"continuing with {left.run}: {counted(len(left.hosts), 'host')} left")
    return carry_out(how, plan_hosts(planning, session, matrix, Progress()))


def _last_lock(name: str, facts: HostFacts) -> HostLock:
    from gpusetup.components.record import record_of
    from gpusetup.model.applied import NO_LOCK

    lock = record_of(facts).lock
    if lock == NO_LOCK:
        raise PreflightError("GS-804", f"no apply on record on {name}", hint="gpusetup apply")
    return lock
