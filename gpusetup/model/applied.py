"""A host's record of applies as the controller reads it; hosts of other gpusetup versions write it too.

`gpusetup.components.record` reads it part by part: an unreadable part is reported and does not affect the others.
"""

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.settings import AppliedWanted, MigCut
from gpusetup.model.stack import MatrixStamp, Stack

SCHEMA = "gpusetup/host-lock/1"


class Applied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The target of an apply: the host's lock. Empty if nothing is on record."""

    schema: str = ""
    key: str = ""
    """A digest of the request, the host and the matrix."""
    matrix: MatrixStamp | None = None
    stack: Stack | None = None
    wanted: AppliedWanted | None = None
    unread: str = ""
    """Why no plan can be made from it: it was recorded by the roles alone or by another version."""

    @property
    def repeatable(self) -> bool:
        """Whether a host can be planned from it alone."""
        return bool(self.key) and self.stack is not None and self.wanted is not None and not self.unread


NO_LOCK = Applied()


class Verified(Struct, frozen=True, kw_only=True):
    """The result of an apply's verification; unknown fields of other versions are ignored."""

    key: str | None = None
    """The key of the lock that was verified."""
    level: str = ""
    verdict: str = ""
    simulated: bool = False
    driver: str | None = None
    run: str = ""
    time: str = ""
    """When the host recorded it."""

    @property
    def passed(self) -> bool:
        """Whether the verification passed, or was skipped on a simulated host."""
        return self.verdict in {"pass", "warn"} or (self.verdict == "skip" and self.simulated)


class Apply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The running apply, or the last finished one; `last` is the one before a running apply."""

    id: str = ""
    digest: str = ""
    started: str | None = None
    finished: str | None = None
    last: "Apply | None" = None
    lock: Applied = NO_LOCK


class KeptFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An earlier content of a file."""

    sha256: str
    mode: int | None = None
    owner: tuple[int, ...] = ()
    link: str = ""
    attributes: dict[str, str] = {}


class RecordedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that gpusetup wrote or removed; `now` is what the probe found, if it looked."""

    sha256: str | None = None
    present: bool = True
    mode: int | None = None
    folders: tuple[str, ...] = ()
    """Folders created for it, innermost first."""
    apply: str | None = None
    original: KeptFile | None = None
    previous: KeptFile | None = None
    edited: bool = False
    """Somebody else changed it between two writes of gpusetup, so `original` is out of date."""
    now: str | UnsetType | None = UNSET
    mode_now: int | None = None
    hint: str = ""
    """The command that writes it again, if no apply does."""


class RecordedService(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A unit that gpusetup enabled, and its state before."""

    enabled: bool = False
    was_enabled: bool = False
    was_active: bool = False


class RecordedPython(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Python environment as the last apply left it; `now` is what the probe finds wrong with it."""

    path: str | None = None
    packages: dict[str, str] = {}
    adopted: bool = False
    unwanted: bool = False
    """No longer requested: it stays until `remove`."""
    now: str | None = None


class Expected(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must run since the last finished apply."""

    parts: dict[str, str] = {}
    """A digest of the settings of each finished part."""
    driver_version: str | None = None
    driver_module: str | None = None
    kernels: tuple[str, ...] = ()
    python: RecordedPython | None = None
    environments: tuple[RecordedPython, ...] = ()
    """Named environments."""


class RecordedWaits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What takes effect only after a restart or reboot, by part, and the boot in which it was applied."""

    boot: str = ""
    what: dict[str, tuple[str, ...]] = {}


class RecordedRunfile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The driver that gpusetup installed from NVIDIA's `.run` file."""

    path: str = ""
    version: str = ""
    replaced: bool = False
    """It replaced a driver from another `.run` file, which cannot be restored."""


class Lost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An earlier record that was damaged or missing when this one began."""

    time: str = ""
    why: str = ""
    kept: str = ""


class RecordedMig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPUs partitioned with MIG, by PCI address: as gpusetup found them, and as it left them."""

    found: dict[str, MigCut | None] = {}
    wanted: dict[str, MigCut] = {}


class Begun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that was begun and not completed: it was interrupted, or a command failed."""

    what: str
    since: str
    aim: str = ""
    """The intended result."""
    apply: str | None = None


class HostRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that gpusetup did to a host: `/var/lib/gpusetup/state.json`."""

    schema: str = ""
    apply: Apply = Apply()
    lock: Applied = NO_LOCK
    verified: Verified | None = None
    lost: Lost = Lost()
    expect: Expected = Expected()
    waits: RecordedWaits = RecordedWaits()
    packages: dict[str, str] = {}
    """The requested packages in their installed versions."""
    brought: dict[str, str] = {}
    moved: dict[str, str] = {}
    taken: dict[str, str] = {}
    counted: str = ""
    """The last transaction included in `brought`, `moved` and `taken`."""
    listed: dict[str, str] = {}
    """Repository address → time of the newest package lists from it that the host has used."""
    holds: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    """Requested packages that are not held: headers follow their kernel, the container toolkit its security updates."""
    files: dict[str, RecordedFile] = {}
    links: dict[str, str | None] = {}
    services: dict[str, RecordedService] = {}
    streams: dict[str, str | None] = {}
    arguments: tuple[str, ...] = ()
    mig: RecordedMig = RecordedMig()
    runfile: RecordedRunfile = RecordedRunfile()
    open: dict[str, Begun] = {}
    """Changes that were begun and not finished, by kind and name."""
    alternatives: dict[str, str] = {}
    environments: dict[str, str | None] = {}
    folders: dict[str, tuple[str, ...]] = {}
    """Those that gpusetup made for a Python environment, the innermost first."""

    @property
    def unfinished(self) -> Apply | None:
        """The apply that began and did not finish; None if there is none."""
        return self.apply if self.apply != Apply() and not self.apply.finished else None

    @property
    def begun(self) -> Applied:
        """The lock of the unfinished apply; an empty lock if there is none."""
        return self.unfinished.lock if self.unfinished is not None else NO_LOCK

    @property
    def locks(self) -> tuple[Applied, ...]:
        """The locks on record: of the unfinished apply, then of the last finished one."""
        return tuple(lock for lock in (self.begun, self.lock) if lock != NO_LOCK)

    @property
    def requested(self) -> set[str]:
        """The names of the packages that the locks on record asked for."""
        sets = (lock.wanted.packages for lock in self.locks if lock.wanted is not None and lock.wanted.packages)
        return {package.name for packages in sets for package in packages.wanted()}
