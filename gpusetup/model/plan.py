"""What apply would do, per host: the document gpusetup/plan/1; and what a host answers between two looks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from gpusetup.model import Document
from gpusetup.model.applied import NO_LOCK, Applied
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.stack import MatrixStamp, Reason, Stack
from gpusetup.model.variables import NOTHING, RoleVariables

__all__ = ["SCHEMA", "Action", "HostPlan", "Package", "PackageSet", "Plan", "Refusal"]

SCHEMA = "gpusetup/plan/1"

ActionKind = Literal[
    "repository", "remove", "install", "upgrade", "downgrade", "hold", "nouveau", "module", "service", "file", "python",
    "container", "mig", "monitoring", "reboot", "verify", "record",
]  # fmt: skip


class Action(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change, and why."""

    id: str
    kind: ActionKind
    what: str
    why: str
    reboot: bool = False


class Refusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why nothing may be changed on this host."""

    reference: str
    message: str
    note: str = ""
    hint: str = ""
    source: str = ""
    exit: int = 5


class Away(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a change keeps a host from its work, as earlier ones took."""

    seconds: float
    """The whole change, its reboot too; downloads as they were then."""
    reboot_seconds: float
    source: Literal["host", "fleet", "bench"]
    """Who was measured: this host, other hosts of this machine's runs, or stand-ins without firmware and downloads."""
    runs: int
    """How many changes the figures are the median of."""


class Work(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of Slurm that runs on the host, or a pod there that has a GPU."""

    scheduler: Literal["slurm", "kubernetes"]
    id: str
    """A job's number; a pod's namespace and name."""
    user: str = ""
    name: str = ""
    left: str = ""
    """How long it may still run, as Slurm says it."""

    def __str__(self) -> str:
        """Return what people call it."""
        if self.scheduler == "kubernetes":
            return f"pod {self.id}"
        return f"job {self.id} of {self.user} ({self.name}, {self.left} left)"


class HostPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host: now, then, and every step between."""

    state: Literal["change", "unchanged", "nothing-to-do", "refused", "unreachable", "failed"]
    now: str = ""
    """One line: what the host is and has."""
    stack: Stack | None = None
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    removals: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    reboot: bool = False
    reboot_why: str = ""
    away: Away | None = None
    """None: nothing changes."""
    jobs: dict[int, str] = {}
    """Programs on the GPUs by process id, which must end before the change; apply waits for them and stops none."""
    work: tuple[Work, ...] = ()
    """What a scheduler runs on the host, under which it would change: apply waits for it only with `--drain`."""
    download_bytes: int | None = None
    """Packages and wheels; null when a part of it is not known."""
    package_bytes: int | None = None
    wheel_bytes: int | None = 0
    kind: str = field(default="", name="class")
    refusals: tuple[Refusal, ...] = ()
    simulated: bool = False
    variables: RoleVariables = NOTHING
    """What the roles are told; empty when there is nothing to do."""
    lock: Applied = NO_LOCK
    """What the host will record of this apply; empty where nothing is planned."""


class Plan(Document, frozen=True, kw_only=True, tag="gpusetup/plan/1"):
    """The document."""

    ok: bool = True
    matrix: MatrixStamp
    hosts: dict[str, HostPlan]
    batches: tuple[tuple[str, ...], ...] = ()
    """Who would change together, one batch after the other; empty where nobody asked."""


class Offer(Struct, frozen=True, kw_only=True):
    """One version of a package."""

    version: str
    transitional: bool = False


class PreviewFinding(Struct, frozen=True, kw_only=True):
    """What stands in the way, or is worth a word."""

    level: Literal["refuse", "warn", "info"]
    id: str = ""
    text: str = ""
    hint: str = ""
    reference: str = ""


class PreviewTransaction(Struct, frozen=True, kw_only=True):
    """What the package manager would do."""

    remove: dict[str, str] = {}
    download_bytes: int | None = None


class Preview(Struct, frozen=True, kw_only=True):
    """The answer; hosts tell more than is asked for here."""

    findings: tuple[PreviewFinding, ...] = ()
    candidates: dict[str, tuple[Offer, ...]] = {}
    """Versions by package name, newest first."""
    transaction: PreviewTransaction | None = None
    fetched: str = ""
    """Where the host keeps the package lists for what follows; nothing when they are gone."""
