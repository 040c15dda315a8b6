"""The answers of `verify` and the doctor with `--format json`."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model import Document, Success
from gpusetup.model.diagnosis import Diagnosis, Finding, NextStep, Recovered
from gpusetup.model.verdict import Result, Verdict


class VerifySummary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A summary of one host."""

    verdict: Verdict
    counts: dict[Verdict, int]
    seconds: float
    rows: dict[str, str]
    state: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    simulated: Literal[True] | UnsetType = UNSET


class VerifyReport(Document, frozen=True, kw_only=True, tag="gpusetup/verify/1"):
    """The results of verification per host."""

    ok: bool
    level: str
    started: str
    seconds: float
    program: str
    hosts: dict[str, tuple[Result, ...]]
    summary: dict[str, VerifySummary]


class OutsideTold(Struct, frozen=True, forbid_unknown_fields=True):
    """Trouble in a text that is not the GPU installation's, and the first line that shows it."""

    id: str
    title: str
    advice: str
    line: str
    commands: tuple[str, ...] = ()


class DoctorText(Document, frozen=True, kw_only=True, tag="gpusetup/doctor/1"):
    """What a message or a log means."""

    ok: bool
    recognised: bool
    clean: bool
    findings: tuple[Finding, ...]
    outside: tuple[OutsideTold, ...] | UnsetType = UNSET
    similar: tuple[str, ...] | UnsetType = UNSET
    """Causes of similar messages, the likeliest first, if no cause is known."""
    next_steps: tuple[NextStep, ...] | UnsetType = UNSET
    """What gets the line that shows the cause, if the text does not show it."""
    send: str | UnsetType = UNSET


class DoctorReference(Success, frozen=True, kw_only=True, tag="gpusetup/doctor/1"):
    """The meaning of one of gpusetup's own error references."""

    reference: str
    title: str
    meaning: str = ""
    fix: str
    page: str


class DoctorAlert(Success, frozen=True, kw_only=True, tag="gpusetup/doctor/1"):
    """What an alert of `gpusetup export monitoring` means."""

    alert: str
    severity: str
    cause: str
    page: str


class DoctorVulnerability(Success, frozen=True, kw_only=True, tag="gpusetup/doctor/1"):
    """NVIDIA's bulletins about a known vulnerability."""

    cve: str
    rows: tuple[dict[str, Any], ...]
    """The rows of `matrix cve`: the component, the fixed releases, the bulletin."""
    page: str


class DoctorHosts(Document, frozen=True, kw_only=True, tag="gpusetup/doctor/1"):
    """The diagnoses of machines."""

    ok: bool
    healthy: bool
    hosts: dict[str, Diagnosis]
    failures: dict[str, str]
    recovered: dict[str, Recovered] | UnsetType = UNSET
    """The result of each host's recovery, if one was requested."""
