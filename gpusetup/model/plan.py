"""What apply would do per host: the document gpusetup/plan/1; and a host's preview of a transaction."""

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
    """How long a change will keep a host from its work, estimated from earlier changes."""

    seconds: float
    """The whole change, including its reboot and the downloads of that time."""
    reboot_seconds: float
    source: Literal["host", "fleet", "bench"]
    """What was measured: this host, other hosts of this controller, or test hosts without firmware and downloads."""
    runs: int
    """The number of changes; the figures are their median."""


class Work(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm job on the host, or a pod there that has a GPU."""

    scheduler: Literal["slurm", "kubernetes"]
    id: str
    """A job's number; a pod's namespace and name."""
    user: str = ""
    name: str = ""
    left: str = ""
    """How long it may still run, in Slurm's format."""

    def __str__(self) -> str:
        """Return its kind, id, and for a job its user, name and time left."""
        if self.scheduler == "kubernetes":
            return f"pod {self.id}"
        return f"job {self.id} of {self.user} ({self.name}, {self.left} left)"


class HostPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host: its state now, the target, and every step between."""

    state: Literal["change", "unchanged", "nothing-to-do", "refused", "unreachable", "failed"]
    now: str = ""
    """The host's current state on one line."""
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
    """Process id → program on the GPUs that must end before the change; apply waits for them and stops none."""
    work: tuple[Work, ...] = ()
    """The scheduler's jobs on the host, which the change would affect: apply waits for them only with `--drain`."""
    download_bytes: int | None = None
    """Packages and wheels; null if any part is unknown."""
    package_bytes: int | None = None
    wheel_bytes: int | None = 0
    kind: str = field(default="", name="class")
    refusals: tuple[Refusal, ...] = ()
    simulated: bool = False
    variables: RoleVariables = NOTHING
    """The variables for the roles; empty if there is nothing to do."""
    lock: Applied = NO_LOCK
    """What the host will record of this apply; empty if nothing is planned."""


class Plan(Document, frozen=True, kw_only=True, tag="gpusetup/plan/1"):
    """The document."""

    ok: bool = True
    matrix: MatrixStamp
    hosts: dict[str, HostPlan]
    batches: tuple[tuple[str, ...], ...] = ()
    """Hosts that would change together, one batch after the other; empty if batches were not requested."""


class Offer(Struct, frozen=True, kw_only=True):
    """One version of a package."""

    version: str
    transitional: bool = False


class PreviewFinding(Struct, frozen=True, kw_only=True):
    """A problem or remark found by the preview."""

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
    """A host's preview; hosts return more fields than these."""

    findings: tuple[PreviewFinding, ...] = ()
    candidates: dict[str, tuple[Offer, ...]] = {}
    """Package name → versions, newest first."""
    transaction: PreviewTransaction | None = None
    fetched: str = ""
    """The host's folder with the fetched package lists; empty if they were deleted."""
