"""The progress of a bootstrap: the document gpusetup/status/1 in /var/lib/gpusetup/status.json; it has no secrets."""

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
    """The last error."""

    reference: str
    message: str
    hint: str = ""
    exit: int = 7


class Reboot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reboot by the bootstrap."""

    time: str
    reason: str
    boot: str
    """The id of the boot that it ended."""


class Status(Document, frozen=True, kw_only=True, tag="gpusetup/status/1"):
    """The document; also everything that the state machine keeps between boots."""

    ok: bool = True
    state: State
    step: int = 0
    of: int = 0
    doing: str = ""
    """The current step in words."""
    next: str = ""
    """The next step, or what a person should do."""
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
    """SHA-256 of the applied lock."""
    log: str = ""
    gpusetup: str = ""
