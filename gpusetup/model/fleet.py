"""Documents about many hosts: who changed what, host keys, verifications over time, how hosts differ."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from gpusetup.model import Document
from gpusetup.model.facts import Failure
from gpusetup.model.verdict import Level, Verdict

Event = Literal["begin", "end", "refused", "offer", "token"]


class AuditWho(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who did it, and from where."""

    user: str
    """Whose process it was."""
    login: str = ""
    """Who logged in, as the kernel's own record of it says (`loginuid`); it stays through su and sudo."""
    sudo: str = ""
    """Who called sudo, as sudo says."""
    machine: str
    came_from: str = ""
    """The address of the SSH session."""


class AuditGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts that were treated alike."""

    hosts: str
    """Their names, runs of numbers as `gpu-[001-400]`."""
    number: int
    what: str


class AuditLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line. Each holds the digest of the line before."""

    number: int
    time: str
    event: Event
    command: str
    run: str = ""
    who: AuditWho
    inventory: str = ""
    groups: tuple[AuditGroup, ...] = ()
    note: str = ""
    before: str = ""
    """SHA-256 of the line before; empty in the first."""


class Audit(Document, frozen=True, kw_only=True, tag="gpusetup/audit/1"):
    """The document."""

    ok: bool
    path: str
    head: str
    """Number and digest of the last line, `12:6f1d…`: kept elsewhere, it proves all lines before it."""
    lines: tuple[AuditLine, ...]
    troubles: tuple[str, ...]
    """What was changed or taken away since it was written."""
    notes: tuple[str, ...]
    """What is odd and no forgery: a line that was cut by a crash."""


KeyState = Literal["known", "confirmed", "replaced", "accepted", "unconfirmed", "changed", "another-key", "unreachable"]


class HostKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    state: KeyState
    address: str
    """As ssh names it in its files."""
    fingerprints: tuple[str, ...] = ()
    message: str = ""


class KnownHosts(Document, frozen=True, kw_only=True, tag="gpusetup/known-hosts/1"):
    """The document."""

    ok: bool
    path: str
    hosts: dict[str, HostKeys]


class PastFinding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What failed or warned."""

    id: str
    verdict: Verdict
    text: str


class PastRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One verification of the past."""

    time: str
    level: Level
    verdict: Verdict
    seconds: float
    program: str
    driver: str
    findings: tuple[PastFinding, ...]


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of one part, its runs oldest first."""

    check: str
    subject: str
    unit: str
    points: tuple[tuple[str, float], ...]


class Fallen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure that fell steadily."""

    check: str
    subject: str
    unit: str
    before: float
    now: float
    share: float
    runs: int


class ServiceEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine left service, returned, or a job was refused."""

    time: str
    place: Literal["slurm", "kubernetes", "commands"]
    event: Literal["left", "returned", "by hand", "refused", "forgotten"]
    """`by hand`: somebody returned it or took it over; `forgotten`: the kernel log up to then counts no more."""
    reason: str


class Verifications(Document, frozen=True, kw_only=True, tag="gpusetup/verifications/1"):
    """The history of a host's verifications, oldest first."""

    ok: bool
    """No figure falls."""
    host: str
    file: str
    runs: tuple[PastRun, ...]
    figures: tuple[Figure, ...]
    fallen: tuple[Fallen, ...]
    service: tuple[ServiceEvent, ...]
    """What `fleet health --quarantine`, `--on-bad` and `--on-good` did, oldest first."""


Standing = Literal["usual", "outlier", "unknown"]


class Outlier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value that most others do not have."""

    host: str
    subject: str
    """`GPU 3`, `GPU 0 → GPU 1`; empty: the host itself."""
    column: str
    value: str | float
    usual: str | float | None
    """What more than half have, or the median; None: no value has a majority."""
    deviation: float | None = None
    """Of a figure, percent from the median."""
    alike: int
    """So many have the usual value, or are near the median …"""
    compared: int
    """… of so many that were compared."""


class Cell(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host has in a column; of several GPUs their values, or the one furthest off."""

    text: str
    standing: Standing
    deviation: float | None = None


class Column(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting, or a figure with a unit."""

    id: str
    title: str
    kind: Literal["setting", "figure"]
    unit: str = ""
    usual: str | float | None = None
    cells: dict[str, Cell]


class CompareGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts with the same GPUs, which can be compared."""

    name: str
    hosts: tuple[str, ...]
    columns: tuple[Column, ...]
    outliers: tuple[Outlier, ...]


class Comparison(Document, frozen=True, kw_only=True, tag="gpusetup/compare/1"):
    """All of them; `ok`: every host answered."""

    ok: bool
    groups: tuple[CompareGroup, ...]
    failures: dict[str, Failure] = field(default_factory=dict)

    @property
    def outliers(self) -> int:
        """How many values stand out."""
        return sum(len(group.outliers) for group in self.groups)
