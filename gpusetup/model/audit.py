"""Lines of the audit log."""

from typing import Literal

from msgspec import Struct

Event = Literal["begin", "end", "refused", "offer", "token"]


class AuditWho(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who did it, and from where."""

    user: str
    """The user of the process."""
    login: str = ""
    """The user who logged in, from the kernel's `loginuid`, which su and sudo do not change."""
    sudo: str = ""
    """The user who called sudo, according to sudo."""
    machine: str
    came_from: str = ""
    """The client address of the SSH session."""


class AuditGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts with the same outcome."""

    hosts: str
    """Their names, with ranges such as `gpu-[001-400]`."""
    number: int
    what: str


class AuditLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the log, with the digest of the previous line."""

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
    """SHA-256 of the previous line; empty in the first."""
