"""What apply did per host: the document gpusetup/apply/1."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpusetup.model import Document
from gpusetup.model.plan import Action, Refusal
from gpusetup.model.stack import MatrixStamp, Stack
from gpusetup.model.verdict import Result

VERIFICATION = "verification"
"""`failed_at` of a host whose run was interrupted after its changes were made."""

State = Literal[
    "done", "unchanged", "nothing-to-do", "pending-reboot", "refused", "unreachable", "failed", "verify-failed",
    "interrupted", "not-started", "postponed",
]  # fmt: skip


class Trouble(Struct, frozen=True, kw_only=True):
    """Why a host stopped: the module's own error, else Ansible's message."""

    reference: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET


class PackageChanges(Struct, frozen=True, kw_only=True):
    """The differences between two states of a host's packages; unset if they were not compared."""

    installed: dict[str, str] | UnsetType = UNSET
    removed: dict[str, str] | UnsetType = UNSET
    moved: dict[str, tuple[str, str]] | UnsetType = UNSET
    """Package → (old version, new version)."""


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
    """Role → seconds."""
    reboot_seconds: float = 0.0
    """From the reboot until the host answered again; 0: it did not reboot."""
    failed_at: str | None = None
    failure: Trouble | None = None
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    """What is installed but not yet in effect, each with what it waits for."""
    packages: PackageChanges = PackageChanges()
    history_id: str = ""
    checks: tuple[Result, ...] = ()
    """Results of the verification; empty if it was not run."""
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
