"""Act on a verification: take a bad machine out of service, return a good one, run the user's commands.

This never changes the verdict: failures here are warnings, and tried again after the next verification.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sqlite3
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.cli.verify import Service
from gpusetup.drive.runner import run
from gpusetup.errors import BadInputError, Exit, GpuSetupError, reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpusetup.report.model import HostReport, Report
    from gpusetup_fleet.health.schedulers import Place
    from gpusetup_fleet.health.service import Kept, Look, Rule, Standing

PLACES = ("slurm", "slurm-job", "kubernetes")
LOOK_SECONDS = 25.0
"""Time limit for a look at this machine: Slurm ends its health program after 60."""
_COMMAND_SECONDS = 30.0
_PAUSE = 1.0
_WITH = "with --quarantine, --on-bad, --on-good or --hooks: "
_WAITS = 10
"""How often a job waits for another verification, such as that of a job that starts at the same time."""


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the options that act on a verification."""
    group.add_argument(
        "--quarantine", choices=PLACES,
        help="drain a bad machine, return a good one; slurm-job: exit 8 around a job (prolog, epilog)",
    )  # fmt: skip
    group.add_argument(
        "--on-bad", metavar="COMMAND", default="",
        help="run when a machine leaves service; {node} and {reason} are filled in",
    )  # fmt: skip
    group.add_argument("--on-good", metavar="COMMAND", default="", help="run when it returns")
    group.add_argument(
        "--node", metavar="NAME", help=f"{_WITH}the scheduler's name for this machine; default: its host name"
    )
    group.add_argument(
        "--leave-after",
        type=int,
        default=2,
        metavar="N",
        help=f"{_WITH}bad verifications in a row; default: %(default)s",
    )
    group.add_argument(
        "--return-after",
        type=int,
        default=3,
        metavar="N",
        help=f"{_WITH}good verifications in a row; default: %(default)s",
    )
    group.add_argument(
        "--most-out", default="10%", metavar="N[%]",
        help=f"{_WITH}leave a bad machine in service once so many are out; default: 10%% of all, at least 1",
    )  # fmt: skip
    group.add_argument("--ignore", metavar="CHECK[,CHECK…]", help=f"{_WITH}checks that do not count")
    group.add_argument(
        "--forget",
        action="store_true",
        help=f"{_WITH}ignore errors in the kernel log up to now, such as before a reset",
    )


def service_of(arguments: argparse.Namespace) -> Service | None:
    """Return how to act on a verification, or None without an option that asks for it."""
    if not (arguments.quarantine or arguments.on_bad or arguments.on_good):
        return None
    longest = LOOK_SECONDS if arguments.quarantine else 0.0
    return Service(longest, partial(_forgotten, arguments), partial(act, arguments))


def check(arguments: argparse.Namespace) -> None:
    """Refuse contradictory options before doing anything."""
    regular = "--timer" if arguments.timer is not None else "--hooks" if arguments.hooks is not None else ""
    if regular and (arguments.forget or (arguments.quarantine == "slurm-job" and arguments.timer is not None)):
        option = "--forget" if arguments.forget else "--quarantine slurm-job"
        raise BadInputError("GS-512", f"{option} cannot be used with {regular}", path=option)
    if arguments.leave_after < 1 or arguments.return_after < 1:
        raise BadInputError("GS-516", "--leave-after and --return-after must be 1 or more", path="--leave-after")
    if not re.fullmatch(r"[1-9][0-9]{0,5}|(?:[1-9][0-9]?|100)%", arguments.most_out):
        raise BadInputError(
            "GS-516", "--most-out takes a number of machines, or a share such as 10%", path="--most-out"
        )
    if arguments.node and arguments.inventory is not None:
        raise BadInputError("GS-516", "--node names one machine, not those of an inventory", path="--node")
    if arguments.quarantine == "slurm-job" and arguments.inventory is not None:
        raise BadInputError("GS-516", "a prolog verifies its own machine, not an inventory", path="--quarantine")
    from gpusetup.verify.registry import checks

    known = {one.id for one in checks()}
    if unknown := [name for name in _ignored(arguments) if name not in known]:
        raise BadInputError(
            "GS-516", f"there is no check {unknown[0]!r}", path="--ignore", hint="gpusetup verify --explain quick"
        )
    for option in ("--on-bad", "--on-good"):
        _words(arguments, option)


def check_commands(arguments: argparse.Namespace) -> None:
    """Refuse commands that cannot run, before a timer would run them."""
    for option in ("--on-bad", "--on-good"):
        words = _words(arguments, option)
        if words and shutil.which(words[0]) is None:
            raise BadInputError(
                "GS-516", f"{option}: {words[0]} is missing or not executable", path=option,
                hint="name a program with its whole path; it runs without a shell",
            )  # fmt: skip


def _words(arguments: argparse.Namespace, option: str) -> list[str]:
    text = arguments.on_bad if option == "--on-bad" else arguments.on_good
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInputError("GS-516", f"{option}: {text!r} cannot be read: {error}", path=option) from error


def _ignored(arguments: argparse.Namespace) -> list[str]:
    return [name.strip() for name in (arguments.ignore or "").split(",") if name.strip()]


def _node(arguments: argparse.Namespace, host: str) -> str:
    if arguments.inventory is not None:
        return host
    if arguments.quarantine == "kubernetes":
        return str(arguments.node or platform.node().lower())
    return str(arguments.node or os.environ.get("SLURMD_NODENAME") or platform.node().partition(".")[0])


def _kept(arguments: argparse.Namespace, host: str) -> Kept:
    from gpusetup.report.history import file_of
    from gpusetup_fleet.health.service import Kept

    place = (arguments.quarantine or "commands").partition("-")[0]
    return Kept(file_of(host, os.environ, here=arguments.inventory is None), place)


def _forgotten(arguments: argparse.Namespace, host: str) -> float:
    """Return the time up to which a host's kernel errors do not count; --forget sets it to now."""
    from gpusetup_fleet.health import service

    kept, now = _kept(arguments, host), time.time()
    try:
        if arguments.forget:
            service.note(kept, "forgotten", "", now)
        return service.load(kept, now).forgotten if kept.path.exists() else 0.0
    except (OSError, sqlite3.Error):
        return 0.0  # verify warns about the file


def act(arguments: argparse.Namespace, report: Report) -> None:
    """Count each host's result and act on it."""
    from gpusetup_fleet.health import service

    for host in report.hosts:
        if not _counts(arguments, host):
            continue
        if host.maintenance and host.verdict == "fail":
            output.warn(f"{host.name}: checks failed, which counts for nothing: the cloud announces {host.maintenance}")
            continue
        kept = _kept(arguments, host.name)
        try:
            with service.alone(kept.path) as mine:
                if mine:
                    _acted(arguments, kept, host, report)
                else:
                    output.say(f"{host.name}: another verification acts on its health now")
        except (GpuSetupError, OSError, sqlite3.Error, ValueError) as error:
            output.warn(f"{host.name}: nothing was done about its health: {reason(error)}; the next run tries again")


def _counts(arguments: argparse.Namespace, host: HostReport) -> bool:
    """Return whether a result counts: not of a host that is simulated, unreachable, being changed or without a GPU."""
    from gpusetup.report.model import POSTPONED

    away = host.problem and arguments.inventory is not None
    if host.simulated or away or host.state == POSTPONED:
        return False
    if host.own_fault or (host.verdict != "fail" and any(one.blame == "gpusetup" for one in host.results)):
        output.warn(f"{host.name}: a fault of gpusetup, which says nothing about the machine: please report it")
        return False
    if host.verdict == "skip":
        output.warn(
            f"{host.name}: no GPU was found, which is neither good nor bad; --gpus N says how many there should be"
        )
        return False
    return True


def _look(arguments: argparse.Namespace, host: HostReport, report: Report, now: float) -> Look:
    """Return a host's first failure, and the level that detects it."""
    from gpusetup_fleet.health.service import LEVELS, Look

    if host.problem:
        return Look(moment=now, level="quick", bad=host.problem)
    ignored = _ignored(arguments)
    failed = [one for one in host.results if one.verdict == "fail" and one.id not in ignored]
    if not failed:
        return Look(moment=now, level=host.level or report.level)  # type: ignore[arg-type] # a report says it as text
    more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
    level = max((one.level for one in failed), key=LEVELS.index)
    return Look(moment=now, level=level, bad=f"{failed[0].id}: {failed[0].text}{more}")


def _acted(arguments: argparse.Namespace, file: Kept, host: HostReport, report: Report) -> None:
    from gpusetup.model import stamp
    from gpusetup_fleet.health import service
    from gpusetup_fleet.health.schedulers import agreed

    now = time.time()
    look, node = _look(arguments, host, report, now), _node(arguments, host.name)
    rule = service.Rule(leave=arguments.leave_after, back=arguments.return_after)
    kept, place = service.load(file, now), _place(arguments, node)
    seen = place.seen() if place is not None else None
    before, by_hand = (kept, False) if seen is None else agreed(kept, seen, now)
    if by_hand:
        after, said = before, f"{node}: it was returned, or its drain taken over, by hand; counting starts from zero"
    else:
        after = service.counted(before, look, rule)
        said = _change_text(node, before, after, look, rule)
    theirs = seen.theirs if seen is not None and not before.out else ""
    if theirs and after.out:
        said = f"{node} is bad ({look.bad}); someone else drained it: {theirs}"
        after = replace(before, bad=after.bad, good=0, level=after.level)
    leaves = place is not None and not theirs and after.out and not before.out
    full = _full(arguments, place) if place is not None and leaves else ""
    if place is not None and seen is not None and not theirs and not full:
        changed = after.since or kept.since
        place.settle(seen, after.reason if after.out else "", stamp(changed) if changed else "", stamp(now))
        full = _full(arguments, place) if leaves else ""  # others may have left at the same time
        if full:
            place.give_back(place.seen())
    if full:
        said = f"{node} is bad ({look.bad}) and stays in service: {full}"
        after = replace(before, bad=after.bad, good=0, level=after.level)
    after = _run_command(arguments, after, node)
    service.keep(file, kept, after, now, by_hand=by_hand)
    if said:
        output.say(said)


def _full(arguments: argparse.Namespace, place: Place) -> str:
    """Return why no more machines may leave service, or an empty string: a fault of all at once is rarely theirs."""
    from gpusetup_fleet.health.schedulers import limit_of

    out, machines = place.others_out()
    if out < limit_of(arguments.most_out, machines):
        return ""
    return f"{out} of {machines} are out already (--most-out {arguments.most_out}); look for what they have in common"


def _change_text(node: str, before: Standing, after: Standing, look: Look, rule: Rule) -> str:
    from gpusetup_fleet.health.service import wanted

    if after.out and not before.out:
        return f"{node} leaves service: {after.reason}"
    if before.out and not after.out:
        return f"{node} returns to service"
    if after.out and not look.bad:
        passed = f"passed {after.good} of {wanted(after, rule)} verifications in a row"
        return f"{node} {passed}, still out of service: {after.reason}"
    if after.out:
        return f"{node} stays out of service: {look.bad}"
    return f"{node} failed {after.bad} of {rule.leave} verifications in a row: {look.bad}" if look.bad else ""


def _run_command(arguments: argparse.Namespace, standing: Standing, node: str) -> Standing:
    """Run the command that is due; one that fails is a warning, and runs again after the next verification."""
    from gpusetup_fleet.health.schedulers import plain

    due = "on-bad" if standing.out else "on-good"
    if standing.told == due or (due == "on-good" and not standing.told):
        return standing
    words = _words(arguments, f"--{due}")
    if not words:
        return standing
    filled = [word.replace("{node}", node).replace("{reason}", plain(standing.reason)) for word in words]
    try:
        done = run(filled, env=os.environ, deadline=_COMMAND_SECONDS)
    except GpuSetupError as error:
        why = str(error)
    else:
        if done.ok:
            return replace(standing, told=due)
        said = " ".join((done.err or done.out).split())[-200:]
        late = f"it was ended after {_COMMAND_SECONDS:g} s"
        why = late if done.timed_out else f"exit {done.code}" + (f": {said}" if said else "")
    output.warn(f"{node}: the --{due} command failed: {why}; it runs again after the next verification")
    return replace(standing, told=f"{due} failed")


def _place(arguments: argparse.Namespace, node: str) -> Place | None:
    from gpusetup_fleet.health.schedulers import Kubernetes, Slurm

    if arguments.quarantine == "slurm":
        return Slurm(node=node)
    return Kubernetes(node=node) if arguments.quarantine == "kubernetes" else None


def around_a_job(arguments: argparse.Namespace, verified: Callable[[], Report]) -> Exit:
    """Return VERIFY_FAILED on a bad machine: Slurm then drains it, and its health program gives the reason.

    Slurm allows none of its commands in prologs and epilogs. A bad look is repeated at once, because the job waits. An
    epilog does not refuse a node that is already out of service.
    """
    from gpusetup.report.model import POSTPONED
    from gpusetup_fleet.health import service

    bad, seen, waits = "", 0, 0
    while seen < arguments.leave_after:
        time.sleep(_PAUSE if seen or waits else 0)
        report = verified()
        (host,) = report.hosts
        if host.state == POSTPONED and waits < _WAITS:
            waits += 1
            continue
        bad = _look(arguments, host, report, 0.0).bad if _counts(arguments, host) else ""
        if not bad:
            return Exit.DONE
        seen += 1
    kept, now = _kept(arguments, host.name), time.time()
    try:
        if os.environ.get("SLURM_SCRIPT_CONTEXT", "").startswith("epilog") and service.load(kept, now).out:
            return Exit.DONE
        service.note(kept, "refused", bad, now)
    except (OSError, sqlite3.Error) as error:
        output.warn(f"that this machine was refused is not in its history: {kept.path}: {reason(error)}")
    output.say(f"this machine is bad: {bad}")
    return Exit.VERIFY_FAILED
