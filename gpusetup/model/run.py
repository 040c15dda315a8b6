"""What apply did, per host: the document gpusetup/apply/1, a plan with an outcome."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpusetup.model import Document
from gpusetup.model.plan import Action, Refusal
from gpusetup.model.stack import MatrixStamp, Stack
from gpusetup.model.verdict import Result

VERIFICATION = "verification"
"""Where a host was that a person stopped after its changes were made: its `failed_at`."""

State = Literal[
    "done", "unchanged", "nothing-to-do", "pending-reboot", "refused", "unreachable", "failed", "verify-failed",
    "interrupted", "not-started", "postponed",
]  # fmt: skip


class Trouble(Struct, frozen=True, kw_only=True):
    """Why a host stopped: in its module's own words where it gave any, else what Ansible said."""

    reference: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET


class PackageChanges(Struct, frozen=True, kw_only=True):
    """What differs between two looks at a host's packages; nothing is said where nobody compared."""

    installed: dict[str, str] | UnsetType = UNSET
    removed: dict[str, str] | UnsetType = UNSET
    moved: dict[str, tuple[str, str]] | UnsetType = UNSET
    """From which version to which."""


class HostOutcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    state: State
    simulated: bool = False
    now: str = ""
    stack: Stack | None = None
    actions: tuple[Action, ...] = ()
    removals: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    reboot: bool = False
    reboot_why: str = ""
    download_bytes: int | None = None
    kind: str = field(default="", name="class")
    changed: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = {}
    """Seconds by role."""
    reboot_seconds: float = 0.0
    """From its reboot until it answered again; 0: it did not reboot."""
    failed_at: str | None = None
    failure: Trouble | None = None
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    """What is installed and not in effect yet, each with what it waits for."""
    packages: PackageChanges = PackageChanges()
    history_id: str = ""
    checks: tuple[Result, ...] = ()
    """Verdicts of the verification; empty when it was not run."""
    verified: str = ""
    """When the verification passed, or why it was not run."""


class Applied(Document, frozen=True, kw_only=True, tag="gpusetup/apply/1"):
    """The document."""

    ok: bool
    run: str
    log: str
    seconds: dict[str, float]
    matrix: MatrixStamp
    hosts: dict[str, HostOutcome]
