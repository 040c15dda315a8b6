"""Hosts after an apply: the documents gpusetup/drift/1, gpusetup/remove/1 and gpusetup/history/1."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model import Document
from gpusetup.model.applied import NO_LOCK, Applied, Verified
from gpusetup.model.plan import Refusal
from gpusetup.model.run import PackageChanges, Trouble

Mend = Literal["apply", "reboot", "hand"]


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
    lock: Applied = NO_LOCK
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
