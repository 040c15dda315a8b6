"""The owner of a run, as it is recorded on hosts; and hosts that are one machine under two names."""

from __future__ import annotations

import getpass
import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.drive.rundir import live_runs, state_home
from gpusetup.model.plan import Refusal
from gpusetup.model.variables import Owner

if TYPE_CHECKING:
    from gpusetup.drive.playbook import Session
    from gpusetup.model.facts import HostFacts

_FEW_FORKS = 5
"""Ansible's default number of forks."""


def owner_of(session: Session, hosts: int) -> Owner:
    """Return the owner record of this run; `alive` lets hosts release locks of ended runs of the same home at once.

    `hosts`: the number of hosts of the run. With many more hosts than forks each one hears from the run rarely.
    """
    home = state_home(session.environment)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""  # a user id without a name
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii")
    except (OSError, ValueError):
        machine = platform.node()
    return Owner(
        controller=platform.node(), user=user, run=session.run.id,
        home=hashlib.sha256(f"{machine.strip()}:{home.resolve()}".encode()).hexdigest()[:16],
        alive=tuple(live_runs(home)), turns=-(-hosts // (session.reach.forks or _FEW_FORKS)),
    )  # fmt: skip


def twins(hosts: dict[str, HostFacts]) -> dict[str, Refusal]:
    """Return a refusal for each host that is the same machine as another: their changes would conflict."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, facts in hosts.items():
        boot = facts.boot
        if boot is not None and boot.id and boot.machine:
            named.setdefault((boot.machine, boot.id), []).append(name)
    return {
        name: Refusal(
            reference="GS-415",
            message=f"{' and '.join(names)} are the same machine",
            note="they have the same machine id and boot id; nothing was changed",
            hint=f"keep one of the names in the inventory, or exclude the others: --limit {names[0]}",
        )
        for names in named.values()
        if len(names) > 1
        for name in names
    }
