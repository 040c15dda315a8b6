"""Drift for people: a table of the fleet, then host by host what differs, then the commands to copy."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gpusetup.cli.plan_text import refusal_lines
from gpusetup.drive.causes import counted

if TYPE_CHECKING:
    from gpusetup.model.lifecycle import Drift, HostDrift

__all__ = ["drift_text"]

_WIDTH = 80
_WORDS = {
    "same": "as applied",
    "drifted": "DRIFTED",
    "not-applied": "nothing was applied here",
    "nothing-to-do": "no NVIDIA GPU",
    "unreachable": "could not be reached",
    "failed": "could not be compared",
}


def drift_text(drift: Drift) -> str:
    """Return the whole answer."""
    from gpusetup.cli.output import table

    lines = []
    if len(drift.hosts) > 1:
        rows = [(name, _WORDS[host.state], _count(host), host.applied[:16]) for name, host in drift.hosts.items()]
        lines += [table(("host", "state", "differences", "applied"), rows)]
    lines += [_block(name, host) for name, host in drift.hosts.items() if len(drift.hosts) == 1 or _says_more(host)]
    states = [host.state for host in drift.hosts.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lines.append(f"{counted(len(states), 'host')}: {counts}")
    return "\n".join(lines) + "\n"


def _says_more(host: HostDrift) -> bool:
    return bool(host.differences or host.refusals or host.mend)


def _count(host: HostDrift) -> str:
    return str(len(host.differences)) if host.differences else "-"


def _block(name: str, host: HostDrift) -> str:
    simulated = " (simulated GPU)" if host.simulated else ""
    lines = [f"{name}: {_WORDS[host.state]}{simulated}"]
    if host.applied:
        lines += _wrap(f"applied  {host.applied}: {host.stack or 'by the roles without gpusetup'}", "  ", " " * 11)
    for item in host.differences:
        lines += _wrap(f"- {item.what}: was {item.was}, now {item.now}", "  ", " " * 4)
        lines += _wrap(f"by hand: {item.hint}", "    ", " " * 13) if item.hint else []
    for refusal in host.refusals:
        lines += refusal_lines(refusal)
    if host.mend:
        lines.append(f"  fix:  {host.mend}")
    return "\n".join(lines) + "\n"


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
