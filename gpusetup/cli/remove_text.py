"""Removal for people: what goes, what comes back, how it ended."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

from gpusetup.cli.plan_text import refusal_lines
from gpusetup.drive.causes import counted

if TYPE_CHECKING:
    from gpusetup.model.lifecycle import HostRemoval, Removal, Removed

__all__ = ["removal_text"]

_WIDTH = 80
_WORDS = {
    "planned": "would return to the state before the first apply",
    "done": "restored to the state before the first apply",
    "unchanged": "gpusetup has installed nothing here",
    "pending-reboot": "restored to the state before the first apply; a reboot is pending",
    "refused": "refused; nothing was changed",
    "unreachable": "could not be reached",
    "failed": "FAILED part-way",
    "interrupted": "stopped",
    "left-over": "NOT restored completely: some changes could not be undone",
}


def removal_text(removed: Removed) -> str:
    """Return the whole answer."""
    lines = [_block(name, host) for name, host in removed.hosts.items()]
    states = [host.state for host in removed.hosts.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return "\n".join([*lines, "", f"{counted(len(states), 'host')}: {counts}", f"log: {removed.log}"]) + "\n"


def _block(name: str, host: HostRemoval) -> str:
    lines = [f"{name}: {_WORDS[host.state]}" + (" (simulated GPU)" if host.simulated else "")]
    if host.removal is not None:
        lines += _removal(host.removal)
    for refusal in host.refusals:
        lines += refusal_lines(refusal)
    if host.failed_at is not None:
        lines += _wrap(f"at       {host.failed_at}")
    if host.failure is not None:
        reference = f" [{host.failure.reference}]" if host.failure.reference else ""
        lines += _wrap(f"because  {host.failure.message or ''}{reference}")
        lines += _wrap(f"hint     {host.failure.hint or 'run the same command to continue; see the full log'}")
    for text in host.pending:
        lines += _wrap(f"pending  reboot: {text}")
    for kind, names in sorted(host.ours.items()):
        lines += _wrap(f"left     {kind}: {', '.join(names)}")
    if host.ours:
        how = "undo these by hand, or make the packages available; then run the same command again"
        lines += _wrap(f"hint     {how}. To keep them: rm -r /var/lib/gpusetup on the host")
    for path, place in sorted(host.saved.items()):
        lines += _wrap(f"saved    {path} was changed after gpusetup wrote it; that version is {place}")
    for path in host.kept:
        lines += _wrap(f"kept     {path} holds nothing of gpusetup any more and stays")
    for text in host.warnings:
        lines += _wrap(f"warning  {text}")
    for kind, names in sorted(msgspec.structs.asdict(host.left_over).items()):
        if not names:
            continue
        lines += _wrap(f"differs  {kind} since the apply, not by gpusetup: {', '.join(sorted(names))}")
    return "\n".join(lines)


def _removal(removal: Removal) -> list[str]:
    rows = (
        ("packages", "go", removal.packages),
        ("packages", "come back", removal.restored),
        ("holds", "end", removal.holds),
        ("files", "go", removal.files_deleted),
        ("files", "come back", removal.files_restored),
        ("links", "as before", removal.links),
        ("services", "as before", removal.services),
        ("MIG", "as before", removal.mig),
        ("boot", "arguments go", removal.arguments),
        ("boot", "rebuilt", ("the initramfs",) if removal.initramfs else ()),
        ("python", "goes", (removal.python,) if removal.python else ()),
        ("python", "go", removal.environments),
        ("record", "goes", (removal.history,) if removal.history else ()),
    )
    return [line for kind, how, names in rows if names for line in _wrap(f"{kind:<8} {how}: {', '.join(names)}")]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent=" " * 11, break_on_hyphens=False)
