"""The documents about health over time."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model.verdict import Level, Verdict


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


class Verifications(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The history of a host's verifications, oldest first."""

    schema: Literal["gpusetup/verifications/1"] = "gpusetup/verifications/1"
    ok: bool
    """No figure falls."""
    host: str
    file: str
    runs: tuple[PastRun, ...]
    figures: tuple[Figure, ...]
    fallen: tuple[Fallen, ...]
    service: tuple[ServiceEvent, ...]
    """What `fleet health --quarantine`, `--on-bad` and `--on-good` did, oldest first."""
