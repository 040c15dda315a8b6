"""The documents that `--format json` prints, and a table of all; the larger ones live in modules of their own."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.applied import Applied
from gpusetup.model.bundle import Manifest
from gpusetup.model.compare import Comparison
from gpusetup.model.diagnosis import Diagnosis, Finding, Said
from gpusetup.model.facts import Facts
from gpusetup.model.health import Verifications
from gpusetup.model.lifecycle import Drift, History, Removed
from gpusetup.model.lock import Lock
from gpusetup.model.plan import Plan
from gpusetup.model.run import Applied as ApplyRun
from gpusetup.model.stack import MatrixStamp, Reason, Resolution, TakenFor
from gpusetup.model.status import Status
from gpusetup.model.verdict import Result, Verdict
from gpusetup.model.watch import Watch

__all__ = [
    "DOCUMENTS",
    "Asked",
    "BundleMade",
    "Clash",
    "ContentPlace",
    "DoctorAlert",
    "DoctorHosts",
    "DoctorReference",
    "DoctorText",
    "ErrorDocument",
    "MatrixFiles",
    "MatrixRows",
    "MonitoringFiles",
    "NoRows",
    "NoStack",
    "OutsideTold",
    "StackClasses",
    "UserDataMade",
    "VerifyReport",
    "VerifySummary",
    "Why",
    "WhyNot",
]


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every document begins with."""


class Told(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error in words."""

    reference: str
    message: str
    path: str
    hint: str
    context: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    link: str | UnsetType = UNSET


class ErrorDocument(Document, frozen=True, kw_only=True):
    """Any command that failed, and nothing more precise can be said."""

    schema: Literal["gpusetup/error/1"] = "gpusetup/error/1"
    ok: Literal[False] = False
    error: Told


# --- the matrix and the resolver --------------------------------------------------------------------------------------


class Clash(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the rules that cannot be kept together."""

    rule: str
    text: str
    source: str


class NoStack(Document, frozen=True, kw_only=True):
    """No stack fits: the smallest set of rules that exclude each other, and ways out."""

    schema: Literal["gpusetup/stack/1"] = "gpusetup/stack/1"
    ok: Literal[False] = False
    matrix: MatrixStamp
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...]


class MatrixRows(Document, frozen=True, kw_only=True):
    """Rows of the matrix; the keys of a row depend on what was looked up, and each has confidence and sources."""

    schema: Literal["gpusetup/matrix/1"] = "gpusetup/matrix/1"
    ok: Literal[True] = True
    matrix: MatrixStamp
    rows: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    fits: dict[str, tuple[str, ...]] | UnsetType = UNSET
    """What else runs on the driver that was asked about."""
    conclusion: str | UnsetType = UNSET
    gpus: tuple[TakenFor, ...] | UnsetType = UNSET
    """What the GPUs' names were taken for."""


class NoRows(Document, frozen=True, kw_only=True):
    """No row fits what was asked."""

    schema: Literal["gpusetup/matrix/1"] = "gpusetup/matrix/1"
    ok: Literal[False] = False
    rows: tuple[()] = ()
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...] = ()


class MatrixFiles(Document, frozen=True, kw_only=True):
    """Where the matrix is kept."""

    schema: Literal["gpusetup/matrix-files/1"] = "gpusetup/matrix-files/1"
    ok: Literal[True] = True
    files: dict[str, str]


class StackClasses(Document, frozen=True, kw_only=True):
    """One stack, conflict or error for each class of hosts that are alike; each with the names of its hosts."""

    schema: Literal["gpusetup/stacks/1"] = "gpusetup/stacks/1"
    ok: bool
    classes: dict[str, dict[str, Any]]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version that was asked about beside the one that is chosen."""

    version: str
    fits: bool
    conflict: tuple[Clash, ...] | UnsetType = UNSET


class Why(Document, frozen=True, kw_only=True):
    """Why a component is what it is."""

    schema: Literal["gpusetup/why/1"] = "gpusetup/why/1"
    ok: Literal[True] = True
    component: str
    chosen: Any
    reasons: tuple[Reason, ...]
    asked: Asked | UnsetType = UNSET


class WhyNot(Document, frozen=True, kw_only=True):
    """What forbids a version; `ok` is true where nothing does."""

    schema: Literal["gpusetup/why-not/1"] = "gpusetup/why-not/1"
    ok: bool
    version: str
    forbidden: bool
    conflict: tuple[Clash, ...] = ()
    suggestions: tuple[str, ...] = ()


# --- verify and the doctor --------------------------------------------------------------------------------------------


class VerifySummary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host in short."""

    verdict: Verdict
    counts: dict[Verdict, int]
    seconds: float
    rows: dict[str, str]
    state: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    simulated: Literal[True] | UnsetType = UNSET


class VerifyReport(Document, frozen=True, kw_only=True):
    """Per host what was proven."""

    schema: Literal["gpusetup/verify/1"] = "gpusetup/verify/1"
    ok: bool
    level: str
    started: str
    seconds: float
    program: str
    hosts: dict[str, tuple[Result, ...]]
    summary: dict[str, VerifySummary]


class OutsideTold(Struct, frozen=True, forbid_unknown_fields=True):
    """What a text is about where it is no fault of the GPU's installation, and the first line that shows it."""

    id: str
    title: str
    advice: str
    line: str


class DoctorText(Document, frozen=True, kw_only=True):
    """What a message or a log means."""

    schema: Literal["gpusetup/doctor/1"] = "gpusetup/doctor/1"
    ok: bool
    recognised: bool
    clean: bool
    findings: tuple[Finding, ...]
    outside: tuple[OutsideTold, ...] | UnsetType = UNSET
    send: str | UnsetType = UNSET


class DoctorReference(Document, frozen=True, kw_only=True):
    """What one of gpusetup's own references says."""

    schema: Literal["gpusetup/doctor/1"] = "gpusetup/doctor/1"
    ok: Literal[True] = True
    reference: str
    messages: tuple[Said, ...]
    page: str


class DoctorAlert(Document, frozen=True, kw_only=True):
    """What an alert of `gpusetup monitoring` means."""

    schema: Literal["gpusetup/doctor/1"] = "gpusetup/doctor/1"
    ok: Literal[True] = True
    alert: str
    severity: str
    cause: str
    page: str


class DoctorHosts(Document, frozen=True, kw_only=True):
    """What ails machines."""

    schema: Literal["gpusetup/doctor/1"] = "gpusetup/doctor/1"
    ok: bool
    healthy: bool
    hosts: dict[str, Diagnosis]
    failures: dict[str, str]


# --- what commands write ----------------------------------------------------------------------------------------------


class UserDataMade(Document, frozen=True, kw_only=True):
    """User-data for a new instance."""

    schema: Literal["gpusetup/user-data/1"] = "gpusetup/user-data/1"
    ok: Literal[True] = True
    shape: str
    bytes: int
    user_data: str


class ContentPlace(Document, frozen=True, kw_only=True):
    """Where the collection is."""

    schema: Literal["gpusetup/content/1"] = "gpusetup/content/1"
    ok: Literal[True] = True
    path: str


class MonitoringFiles(Document, frozen=True, kw_only=True):
    """What was written for Prometheus and Grafana."""

    schema: Literal["gpusetup/monitoring/1"] = "gpusetup/monitoring/1"
    ok: Literal[True] = True
    folder: str
    files: tuple[str, ...]


class BundleMade(Document, frozen=True, kw_only=True):
    """A bundle that was made or checked."""

    schema: Literal["gpusetup/bundle-made/1"] = "gpusetup/bundle-made/1"
    ok: Literal[True] = True
    path: str
    manifest_sha256: str
    gpusetup: str
    files: int
    bytes: int
    sets: tuple[str, ...]


DOCUMENTS: dict[str, tuple[str, tuple[type[Struct], ...]]] = {
    "apply": ("apply", (ApplyRun,)),
    "bundle": ("a bundle's manifest.json", (Manifest,)),
    "bundle-made": ("bundle", (BundleMade,)),
    "compare": ("compare", (Comparison,)),
    "content": ("content", (ContentPlace,)),
    "doctor": ("doctor", (DoctorHosts, DoctorText, DoctorReference, DoctorAlert)),
    "drift": ("drift", (Drift,)),
    "error": ("any command that fails", (ErrorDocument,)),
    "facts": ("facts", (Facts,)),
    "history": ("rollback --list", (History,)),
    "host-lock": ("what a host keeps of its last apply", (Applied,)),
    "lock": ("lock", (Lock,)),
    "matrix": ("matrix", (MatrixRows, NoRows)),
    "matrix-files": ("matrix --data", (MatrixFiles,)),
    "monitoring": ("monitoring", (MonitoringFiles,)),
    "plan": ("plan", (Plan,)),
    "remove": ("remove", (Removed,)),
    "stack": ("resolve", (Resolution, NoStack)),
    "stacks": ("resolve --from", (StackClasses,)),
    "status": ("status", (Status,)),
    "user-data": ("cloud-init", (UserDataMade,)),
    "verifications": ("history", (Verifications,)),
    "verify": ("verify", (VerifyReport,)),
    "watch": ("watch", (Watch,)),
    "why": ("why", (Why,)),
    "why-not": ("why-not", (WhyNot,)),
}
"""A document's name → where it comes from, and its forms: the answer, then what is printed when the answer is no."""
