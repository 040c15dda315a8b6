"""Documents about hosts: audit log, SSH host keys, verifications over time, comparisons, files for other engines."""

from typing import Literal

from msgspec import Struct, field

from gpusetup.model import Document, Success
from gpusetup.model.audit import AuditLine
from gpusetup.model.facts import Failure
from gpusetup.model.verdict import Level, Verdict
from gpusetup_fleet.ssh import KeyState


class Audit(Document, frozen=True, kw_only=True, tag="gpusetup/audit/1"):
    """The document."""

    ok: bool
    path: str
    head: str
    """Number and digest of the last line, `12:6f1d…`: a copy kept elsewhere proves all lines up to it."""
    lines: tuple[AuditLine, ...]
    troubles: tuple[str, ...]
    """Signs that lines were changed or removed."""
    notes: tuple[str, ...]
    """Irregularities that are not tampering, such as a line cut by a crash."""


class HostKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    state: KeyState
    address: str
    """The host's name in ssh's known_hosts files."""
    fingerprints: tuple[str, ...] = ()
    message: str = ""


class KnownHosts(Document, frozen=True, kw_only=True, tag="gpusetup/known-hosts/1"):
    """The document."""

    ok: bool
    path: str
    hosts: dict[str, HostKeys]


class PastFinding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check that failed or warned."""

    id: str
    verdict: Verdict
    text: str


class PastRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One past verification."""

    time: str
    level: Level
    verdict: Verdict
    seconds: float
    program: str
    driver: str
    findings: tuple[PastFinding, ...]


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of one subject over time, oldest first."""

    check: str
    subject: str
    unit: str
    points: tuple[tuple[str, float], ...]


class ServiceEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine left service or returned, or a job was refused."""

    time: str
    place: Literal["slurm", "kubernetes", "commands"]
    event: Literal["left", "returned", "by hand", "refused", "forgotten"]
    """`by hand`: somebody returned it or took it over; `forgotten`: the kernel log up to then is ignored."""
    reason: str


class Verifications(Success, frozen=True, kw_only=True, tag="gpusetup/verifications/1"):
    """The history of a host's verifications, oldest first."""

    host: str
    file: str
    runs: tuple[PastRun, ...]
    figures: tuple[Figure, ...]
    service: tuple[ServiceEvent, ...]
    """What `fleet health --quarantine`, `--on-bad` and `--on-good` did, oldest first."""


Standing = Literal["usual", "outlier", "unknown"]


class Outlier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value that differs from the others."""

    host: str
    subject: str
    """`GPU 3`, `GPU 0 → GPU 1`; empty: the host itself."""
    column: str
    value: str | float
    usual: str | float | None
    """The majority's value, or the median; None: no value has a majority."""
    deviation: float | None = None
    """For a figure, its deviation from the median in percent."""
    alike: int
    """How many have the usual value or are near the median."""
    compared: int
    """How many were compared."""


class Cell(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host's value in a column; for several GPUs their values, or the one furthest from the usual."""

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
    """Comparable hosts: they have the same GPUs."""

    name: str
    hosts: tuple[str, ...]
    columns: tuple[Column, ...]
    outliers: tuple[Outlier, ...]


class Comparison(Document, frozen=True, kw_only=True, tag="gpusetup/compare/1"):
    """A comparison of hosts; `ok`: every host answered."""

    ok: bool
    groups: tuple[CompareGroup, ...]
    failures: dict[str, Failure] = field(default_factory=dict)

    @property
    def outliers(self) -> int:
        """The number of outliers in all groups."""
        return sum(len(group.outliers) for group in self.groups)


class HandoverFiles(Success, frozen=True, kw_only=True, tag="gpusetup/handover/1"):
    """The files written for another engine."""

    folder: str
    files: tuple[str, ...]
    twice: tuple[str, ...]
    """What host and engine would both do, and how that is prevented."""
    warnings: tuple[str, ...]
