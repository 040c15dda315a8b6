"""How far a bootstrap is: the document gpusetup/status/1, kept in /var/lib/gpusetup/status.json. It holds no secret."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model import Document

SCHEMA = "gpusetup/status/1"
STATUS_FILE = "/var/lib/gpusetup/status.json"

State = Literal[
    "preparing", "waiting", "fetching", "applying", "retrying", "rebooting", "sealing",
    "done", "sealed", "nothing-to-do", "pending-reboot", "failed",
]  # fmt: skip
FINAL = frozenset({"done", "sealed", "nothing-to-do", "pending-reboot", "failed"})


class Problem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What went wrong last."""

    reference: str
    message: str
    hint: str = ""
    exit: int = 7


class Reboot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reboot that the bootstrap decided on."""

    time: str
    reason: str
    boot: str
    """The boot that it ended."""


class Recheck(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the last look at a finished machine found."""

    time: str
    state: str
    """As `gpusetup drift` calls it: same, drifted, …"""
    differences: tuple[str, ...] = ()
    mend: str = ""


class Status(Document, frozen=True, kw_only=True, tag="gpusetup/status/1"):
    """The document; also all that the state machine remembers from one boot to the next."""

    ok: bool = True
    state: State
    step: int = 0
    of: int = 0
    doing: str = ""
    """What happens now, in words."""
    next: str = ""
    """What happens after that, or what a person should do."""
    started: str
    since: str
    """When this state began."""
    boot: str
    attempts: int = 0
    reboots: tuple[Reboot, ...] = ()
    last_error: Problem | None = None
    verified: str = ""
    simulated: bool = False
    lock: str = ""
    """SHA-256 of the lock that was applied."""
    recheck: Recheck | None = None
    log: str = ""
    gpusetup: str = ""
