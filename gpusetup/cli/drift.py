"""Show what changed since the last apply, and the command that fixes it.

Changes nothing; exit code 9 when something differs. gpusetup compares packages and holds, files, the kernel module
for the next boot and the loaded one, nouveau, Fabric Manager, services and the Python environment.

examples:
  gpusetup drift inventory.ini
  gpusetup drift inventory.ini --format json --out drift.json
  gpusetup drift                       this machine, as root
  gpusetup drift inventory.ini --timer daily      every day by a systemd timer; --timer never ends it
"""

import argparse
import os

from msgspec.structs import replace

from gpusetup.cli import options, output, timers
from gpusetup.cli.grammar import tables
from gpusetup.cli.output import table, wrapped
from gpusetup.cli.plan import recorded_stack, refusal_lines
from gpusetup.drive.causes import tally
from gpusetup.errors import Exit, gravest
from gpusetup.model.facts import Failure, HostFacts
from gpusetup.model.lifecycle import Difference, Drift, HostDrift


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    timers.add_argument(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Compare the hosts with their records, or install a timer that does."""
    if arguments.timer is not None:
        return timers.answer(arguments, _TASK, os.environ)
    from gpusetup.cli.session import facts_of_hosts
    from gpusetup.matrix.load import matrix
    from gpusetup.plan.preflight import policy_refusals
    from gpusetup.rollout.options import policy_beside

    facts = facts_of_hosts(arguments)
    hosts = {name: _compared(host, name, arguments.inventory) for name, host in facts.hosts.items()}
    policy = policy_beside(arguments.inventory)
    for name, host in facts.hosts.items():
        broken = policy_refusals(host, policy, matrix(), way=_command(arguments.inventory, name, "apply"))
        hosts[name] = replace(hosts[name], refusals=(*hosts[name].refusals, *broken))
    hosts |= {name: _not_seen(failure) for name, failure in facts.failures.items()}
    codes = [_exit_of(host) for host in hosts.values()]
    drift = Drift(ok=gravest(codes) is Exit.DONE, hosts=hosts)
    output.answer(arguments.format, drift, drift_text(drift), arguments.out)
    return gravest(codes)


_TASK = timers.Task(
    does="check {what} for drift",
    codes="# Exit 9, a difference, is a failed unit: `systemctl {user}--failed` and alerts on them show it.\n",
)


def _compared(facts: HostFacts, name: str, inventory: str | None) -> HostDrift:
    from gpusetup.components.record import hidden, record_of
    from gpusetup.matrix.load import matrix as load_matrix
    from gpusetup.plan.lifecycle import differences
    from gpusetup.plan.preflight import apply_refused
    from gpusetup.resolve.api import resolve

    if facts.state is None:
        refusal = hidden(facts)
        if refusal is not None:
            return HostDrift(state="failed", simulated=facts.simulated, refusals=(refusal,))
        if not facts.gpus:
            return HostDrift(state="nothing-to-do", simulated=facts.simulated)
        refusal = apply_refused(facts, load_matrix(), resolve)
        if refusal is not None:
            return HostDrift(state="not-applied", refusals=(refusal,))
        return HostDrift(state="not-applied", simulated=facts.simulated, mend=_command(inventory, name, "apply"))
    found = differences(facts)
    unfinished = any(item.id == "apply" for item in found)
    command = "apply --recorded" if facts.state.lock.repeatable and not unfinished else "apply"
    command = "remove --yes" if any(item.mend == "remove" for item in found) else command
    return HostDrift(
        state="drifted" if found else "same",
        simulated=facts.simulated,
        applied=record_of(facts).apply.id,
        stack=recorded_stack(facts.state.lock),
        differences=found,
        mend=_command(inventory, name, command, found) if any(item.mend != "hand" for item in found) else "",
    )


def _command(inventory: str | None, name: str, command: str, found: tuple[Difference, ...] = ()) -> str:
    """Return the command that fixes a host; it reboots only if a difference needs that."""
    import shlex

    reboot = any(item.mend == "reboot" for item in found)
    where = ["--limit", name] if inventory is not None else []
    words = ["gpusetup", *command.split(), *([inventory] if inventory is not None else []), *where]
    return shlex.join(words + (["--reboot", "when-needed"] if reboot else []))


def _not_seen(failure: Failure) -> HostDrift:
    from gpusetup.plan.preflight import refusal_not_seen

    unreachable = failure.exit == Exit.UNREACHABLE
    return HostDrift(state="unreachable" if unreachable else "failed", refusals=(refusal_not_seen(failure),))


def _exit_of(host: HostDrift) -> Exit:
    if host.refusals:
        return gravest([Exit(refusal.exit) for refusal in host.refusals])
    return Exit.DONE if host.state in {"same", "nothing-to-do"} else Exit.PENDING


_STATES: dict[str, str] = tables()["drifts"]


def drift_text(drift: Drift) -> str:
    """Return the answer as text."""
    lines, hosts = [], drift.hosts.items()
    if len(hosts) > 1:
        rows = [(name, _STATES[it.state], str(len(it.differences) or "-"), it.applied[:16]) for name, it in hosts]
        lines += [table(("host", "state", "differences", "applied"), rows)]
    lines += [_block(name, it) for name, it in hosts if len(hosts) == 1 or it.differences or it.refusals or it.mend]
    lines.append(tally([_STATES[host.state] for host in drift.hosts.values()]))
    return "\n".join(lines) + "\n"


def _block(name: str, host: HostDrift) -> str:
    simulated = " (simulated GPU)" if host.simulated else ""
    lines = [f"{name}: {_STATES[host.state]}{simulated}"]
    if host.applied:
        lines += wrapped(f"applied  {host.applied}: {host.stack or 'by the roles without gpusetup'}")
    for item in host.differences:
        lines += wrapped(f"- {item.what}: was {item.was}, now {item.now}", "  ", " " * 4)
        lines += wrapped(f"by hand: {item.hint}", "    ", " " * 13) if item.hint else []
    for refusal in host.refusals:
        lines += refusal_lines(refusal)
    if host.mend:
        lines.append(f"  fix:  {host.mend}")
    return "\n".join(lines) + "\n"
