"""What a host's record says of applies, as the controller reads it: written by hosts of this and of other versions.

`gpusetup.components.record` reads it part by part: what does not fit is told, and spoils nothing else.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.settings import AppliedWanted, MigCut
from gpusetup.model.stack import MatrixStamp, Stack

SCHEMA = "gpusetup/host-lock/1"


class Applied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a host was to become: its lock. Nothing of it is set where nothing is on record."""

    schema: str = ""
    key: str = ""
    """What was asked for, on what host and matrix."""
    matrix: MatrixStamp | None = None
    stack: Stack | None = None
    wanted: AppliedWanted | None = None
    unread: str = ""
    """Why it cannot be planned from, for what was recorded by the roles alone or by another version."""

    @property
    def repeatable(self) -> bool:
        """Whether a host can be planned by it alone."""
        return bool(self.key) and self.stack is not None and self.wanted is not None and not self.unread


NO_LOCK = Applied()


class Verified(Struct, frozen=True, kw_only=True):
    """What the verification of an apply found, and for what; fields of other versions are left alone."""

    key: str | None = None
    """What was asked for, as the lock names it."""
    level: str = ""
    verdict: str = ""
    simulated: bool = False
    driver: str | None = None
    run: str = ""
    time: str = ""
    """When the host wrote it down."""

    @property
    def passed(self) -> bool:
        """Whether all is well, as far as there was a GPU to ask."""
        return self.verdict in {"pass", "warn"} or (self.verdict == "skip" and self.simulated)


class Apply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The apply under way, or the last one that finished; `last` is the one before an apply under way."""

    id: str = ""
    digest: str = ""
    started: str | None = None
    finished: str | None = None
    last: Apply | None = None
    lock: Applied = NO_LOCK


class KeptFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file's content that was there before."""

    sha256: str
    mode: int | None = None
    owner: tuple[int, ...] = ()
    link: str = ""
    attributes: dict[str, str] = {}


class RecordedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that gpusetup wrote or took away; `now` is what the probe found, where it looked."""

    sha256: str | None = None
    present: bool = True
    mode: int | None = None
    folders: tuple[str, ...] = ()
    """Those that were made for it, the innermost first."""
    apply: str | None = None
    original: KeptFile | None = None
    previous: KeptFile | None = None
    edited: bool = False
    """Somebody else changed it between two writes of ours: what was there before us is out of date."""
    now: str | UnsetType | None = UNSET
    hint: str = ""
    """The command that writes it again, where no apply does."""


class RecordedService(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A unit that gpusetup enabled, and what it was before."""

    enabled: bool = False
    was_enabled: bool = False
    was_active: bool = False
    link: str = ""


class RecordedPython(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Python environment as it was left; `now` is what the probe finds wrong with it."""

    path: str | None = None
    packages: dict[str, str] = {}
    adopted: bool = False
    unwanted: bool = False
    """Nobody asks for it any more: it stays until removal."""
    now: str | None = None


class Expected(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has to run since the last apply that finished."""

    parts: dict[str, str] = {}
    """A digest of the wish for each part that is finished."""
    driver_version: str | None = None
    driver_module: str | None = None
    kernels: tuple[str, ...] = ()
    python: RecordedPython | None = None
    environments: tuple[RecordedPython, ...] = ()
    """Named environments, each by its path."""


class RecordedWaits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What applies left to a restart or a reboot, by part, and in which boot."""

    boot: str = ""
    what: dict[str, tuple[str, ...]] = {}


class RecordedRunfile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The driver that gpusetup installed from NVIDIA's `.run` file."""

    path: str = ""
    version: str = ""
    replaced: bool = False
    """One of another `.run` file was there before: it is gone for good."""


class Lost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that was damaged or gone when this one began."""

    time: str = ""
    why: str = ""
    kept: str = ""


class RecordedMig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPUs that were cut into MIG instances, by PCI address: as they were found, and as they were left."""

    found: dict[str, MigCut | None] = {}
    wanted: dict[str, MigCut] = {}


class Begun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of one thing that was begun and has not come about: a cut, or a command that failed."""

    what: str
    since: str
    aim: str = ""
    """What it was to become."""
    apply: str | None = None


class HostRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that gpusetup did to a host: `/var/lib/gpusetup/state.json`."""

    schema: str = ""
    apply: Apply = Apply()
    lock: Applied = NO_LOCK
    verified: Verified | None = None
    lost: Lost = Lost()
    expect: Expected = Expected()
    waits: RecordedWaits = RecordedWaits()
    packages: dict[str, str] = {}
    """What was asked for, in the versions that came."""
    brought: dict[str, str] = {}
    moved: dict[str, str] = {}
    taken: dict[str, str] = {}
    counted: str = ""
    """The transaction that `brought`, `moved` and `taken` tell of last."""
    listed: dict[str, str] = {}
    """Repositories by address, each with the time of its newest package lists that the host has used."""
    holds: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    """Asked for, and left free: headers follow their kernel, the container toolkit its security updates."""
    files: dict[str, RecordedFile] = {}
    links: dict[str, str | None] = {}
    services: dict[str, RecordedService] = {}
    streams: dict[str, str | None] = {}
    arguments: tuple[str, ...] = ()
    mig: RecordedMig = RecordedMig()
    runfile: RecordedRunfile = RecordedRunfile()
    open: dict[str, Begun] = {}
    """What was begun and not finished, by kind and name."""
    alternatives: dict[str, str] = {}
    environments: dict[str, str | None] = {}
