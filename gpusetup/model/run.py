"""What apply did, per host: the document gpusetup/apply/1, a plan with an outcome."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from gpusetup.model.plan import Action, Refusal
from gpusetup.model.stack import MatrixStamp, Stack

__all__ = ["VERIFICATION", "Applied", "HostOutcome", "State"]

VERIFICATION = "verification"
"""Where a host was that a person stopped after its changes were made: its `failed_at`."""

State = Literal[
    "done", "unchanged", "nothing-to-do", "pending-reboot", "refused", "unreachable", "failed", "verify-failed",
    "interrupted", "not-started", "postponed",
]  # fmt: skip


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
    failed_at: str | None = None
    failure: dict[str, Any] | None = None
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    """Container runtimes that run with their old configuration until somebody restarts them."""
    packages: dict[str, Any] = {}
    history_id: str = ""
    checks: tuple[dict[str, Any], ...] = ()
    """Verdicts of the verification; empty when it was not run."""
    verified: str = ""
    """When the verification passed, or why it was not run."""


class Applied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    schema: Literal["gpusetup/apply/1"] = "gpusetup/apply/1"
    ok: bool
    run: str
    log: str
    seconds: dict[str, float]
    matrix: MatrixStamp
    hosts: dict[str, HostOutcome]
