"""Who changes hosts from here, as each of them is told; and one machine under two names."""

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
"""What Ansible has where nobody sets it; a configuration of the user's own may say so too."""


def owner_of(session: Session, hosts: int) -> Owner:
    """Return who this run is: a host that it finds owned by a run of the same home which is over is free at once.

    `hosts` are worked on together: with many more than forks each of them hears from the run seldom.
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
        controller=platform.node(),
        user=user,
        run=session.run.id,
        home=hashlib.sha256(f"{machine.strip()}:{home.resolve()}".encode()).hexdigest()[:16],
        alive=tuple(live_runs(home)),
        turns=-(-hosts // (session.reach.forks or _FEW_FORKS)),
    )


def twins(hosts: dict[str, HostFacts]) -> dict[str, Refusal]:
    """Return why hosts are refused that are the same machine: what one name wants, the other one would undo."""
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
