"""What became of applied hosts: the documents gpusetup/drift/1, gpusetup/remove/1 and gpusetup/history/1."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model import Document
from gpusetup.model.applied import NO_LOCK, Applied, Verified
from gpusetup.model.plan import Refusal
from gpusetup.model.run import PackageChanges, Trouble

Mend = Literal["apply", "reboot", "hand"]


class Difference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is no longer as the last apply left it, and what mends it."""

    id: str
    what: str
    was: str
    now: str
    mend: Mend
    hint: str = ""
    """What a person does about what no apply touches."""


class HostDrift(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    state: Literal["same", "drifted", "not-applied", "nothing-to-do", "unreachable", "failed"]
    simulated: bool = False
    applied: str = ""
    """The apply that is compared with, by its id, which begins with its time."""
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
    """Everything that brings a host back to what it was before the first apply."""

    packages: tuple[str, ...] = ()
    """Packages that go: gpusetup brought them."""
    restored: tuple[str, ...] = ()
    """Packages that come back or move back, as name=version."""
    files_deleted: tuple[str, ...] = ()
    files_restored: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()
    """GPUs, by PCI address, whose MIG layout becomes what it was."""
    initramfs: bool = False
    python: str = ""
    environments: tuple[str, ...] = ()
    history: str = ""


class HostRemoval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host: what removal would do or did."""

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
    """What gpusetup did that could not be undone; the record stays until it is."""
    saved: dict[str, str] = {}
    """Files that somebody else changed since gpusetup wrote them, each with where that is kept."""
    kept: tuple[str, ...] = ()
    """Files that have nothing of gpusetup in them any more: they stay as they are."""
    left_over: PackageChanges = PackageChanges()
    """Packages that differ from those before the first apply, although nothing of ours is left."""
    failed_at: str | None = None
    failure: Trouble | None = None
    refusals: tuple[Refusal, ...] = ()


class Removed(Document, frozen=True, kw_only=True, tag="gpusetup/remove/1"):
    """The document of `gpusetup remove`."""

    ok: bool
    done: bool
    """False: nothing was changed, this is what removal would do."""
    run: str
    log: str
    hosts: dict[str, HostRemoval]


class Past(Struct, frozen=True, kw_only=True):
    """One apply in a host's history, as the host tells it; fields of other versions are left alone."""

    id: str
    finished: str = ""
    lock: Applied = NO_LOCK
    packages: dict[str, str] = {}
    """The wanted packages in the versions that this apply left."""
    verified: Verified | None = None
    simulated: bool = False


class Listed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One apply as the list shows it."""

    id: str
    finished: str
    stack: str
    verified: Verified | None
    packages: dict[str, str]
    simulated: bool


class HostHistory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host: its applies, oldest first, and which one it stands on."""

    current: str = ""
    applies: tuple[Listed, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class History(Document, frozen=True, kw_only=True, tag="gpusetup/history/1"):
    """The document of `gpusetup rollback --list`."""

    ok: bool
    hosts: dict[str, HostHistory]
