"""What apply, drift, remove and history tell of hosts: the documents gpusetup/apply/1, drift/1, remove/1, history/1."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpusetup.model import Document
from gpusetup.model.applied import NO_LOCK, Verified
from gpusetup.model.applied import Applied as Record
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


Mend = Literal["apply", "remove", "reboot", "hand"]


class Difference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that differs from the state that the last apply left, and what repairs it."""

    id: str
    what: str
    was: str
    now: str
    mend: Mend
    hint: str = ""
    """What to do about something that no apply changes."""


class HostDrift(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    state: Literal["same", "drifted", "not-applied", "nothing-to-do", "unreachable", "failed"]
    simulated: bool = False
    applied: str = ""
    """The id of the apply compared with; it begins with the apply's time."""
    stack: str = ""
    differences: tuple[Difference, ...] = ()
    mend: str = ""
    """The command to copy."""
    refusals: tuple[Refusal, ...] = ()


class Drift(Document, frozen=True, kw_only=True, tag="gpusetup/drift/1"):
    """The document of `gpusetup drift`."""

    ok: bool
    hosts: dict[str, HostDrift]


class Removal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that returns a host to its state before the first apply."""

    packages: tuple[str, ...] = ()
    """Packages to remove, which gpusetup installed."""
    restored: tuple[str, ...] = ()
    """Packages to reinstall or move back, as name=version."""
    files_deleted: tuple[str, ...] = ()
    files_restored: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    runfile: str = ""
    """The version of the driver from a `.run` installer, which is uninstalled."""
    alternatives: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()
    """PCI addresses of GPUs whose MIG layout is restored."""
    initramfs: bool = False
    python: str = ""
    environments: tuple[str, ...] = ()
    history: str = ""


class HostRemoval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What removal would do or did on one host."""

    state: Literal[
        "planned", "done", "unchanged", "pending-reboot", "refused", "unreachable", "failed", "interrupted", "left-over"
    ]
    simulated: bool = False
    removal: Removal | None = None
    changed: int = 0
    seconds: float = 0.0
    pending: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ours: dict[str, tuple[str, ...]] = {}
    """gpusetup's changes that could not be undone; the record stays until they are."""
    saved: dict[str, str] = {}
    """Files that somebody else changed after gpusetup wrote them → where the changed file was saved."""
    kept: tuple[str, ...] = ()
    """Files that no longer contain anything of gpusetup's: they stay as they are."""
    left_over: PackageChanges = PackageChanges()
    """Packages that differ from those before the first apply, although all of gpusetup's changes are undone."""
    failed_at: str | None = None
    failure: Trouble | None = None
    refusals: tuple[Refusal, ...] = ()


class Removed(Document, frozen=True, kw_only=True, tag="gpusetup/remove/1"):
    """The document of `gpusetup remove`."""

    ok: bool
    done: bool
    """False: nothing was changed; this is what removal would do."""
    run: str
    log: str
    hosts: dict[str, HostRemoval]


class Past(Struct, frozen=True, kw_only=True):
    """One apply in a host's history; unknown fields of other versions are ignored."""

    id: str
    finished: str = ""
    lock: Record = NO_LOCK
    packages: dict[str, str] = {}
    """The requested packages in the versions that this apply left."""
    verified: Verified | None = None
    simulated: bool = False


class Listed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One apply in the list."""

    id: str
    finished: str
    stack: str
    verified: Verified | None
    packages: dict[str, str]
    simulated: bool


class HostHistory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host's applies, oldest first, and the current one."""

    current: str = ""
    applies: tuple[Listed, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class History(Document, frozen=True, kw_only=True, tag="gpusetup/history/1"):
    """The document of `gpusetup rollback --list`."""

    ok: bool
    hosts: dict[str, HostHistory]
