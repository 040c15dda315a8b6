"""Who changed what on which host: a line of the audit log, and what `gpusetup fleet audit` answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Event = Literal["begin", "end", "refused", "offer", "token"]


class AuditWho(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who did it, and from where."""

    user: str
    """Whose process it was."""
    login: str = ""
    """Who logged in, as the kernel's own record of it says (`loginuid`); it stays through su and sudo."""
    sudo: str = ""
    """Who called sudo, as sudo says."""
    machine: str
    came_from: str = ""
    """The address of the SSH session."""


class AuditGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts that were treated alike."""

    hosts: str
    """Their names, runs of numbers as `gpu-[001-400]`."""
    number: int
    what: str


class AuditLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line. Each holds the digest of the line before."""

    number: int
    time: str
    event: Event
    command: str
    run: str = ""
    who: AuditWho
    inventory: str = ""
    groups: tuple[AuditGroup, ...] = ()
    note: str = ""
    before: str = ""
    """SHA-256 of the line before; empty in the first."""


class Audit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    schema: Literal["gpusetup/audit/1"] = "gpusetup/audit/1"
    ok: bool
    path: str
    head: str
    """Number and digest of the last line, `12:6f1d…`: kept elsewhere, it proves all lines before it."""
    lines: tuple[AuditLine, ...]
    troubles: tuple[str, ...]
    """What was changed or taken away since it was written."""
    notes: tuple[str, ...]
    """What is odd and no forgery: a line that was cut by a crash."""
