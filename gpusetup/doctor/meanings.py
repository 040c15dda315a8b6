"""What the names and numbers of errors stand for: a pattern finds the whole family, a table tells each one's cause."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from gpusetup.doctor.catalogue import catalogue, cuda_errors, read_table
from gpusetup.model.diagnosis import StatusFile, Sxid, SxidFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.model.diagnosis import CudaError

__all__ = ["meaning", "statuses", "sxid"]

Groups = dict[str, str]
_IN_SERVICE = {"non-fatal", "notable"}
"""Classes of NVSwitch errors after which the switch goes on."""


@cache
def statuses() -> StatusFile:
    """Return the table of what CUDA's libraries and NVML answer."""
    return msgspec.json.decode(read_table("status_names.json"), type=StatusFile)


@cache
def _sxids() -> dict[int, Sxid]:
    return msgspec.json.decode(read_table("sxid.json"), type=SxidFile).sxids


def sxid(number: int) -> Sxid | None:
    """Return what the vendor's list says of an NVSwitch error."""
    return _sxids().get(number)


@cache
def _by_name() -> dict[str, str]:
    found: dict[str, str] = {}
    for family in statuses().families:
        for status in family.statuses:
            for name in filter(None, (status.name, status.also, status.text.lower().rstrip("."))):
                found.setdefault(name, status.cause)
    return found


@cache
def _by_number(family: str) -> dict[int, str]:
    (rows,) = (found.statuses for found in statuses().families if found.family == family)
    return {status.number: status.cause for status in rows if status.number is not None}


@cache
def _cuda_names() -> dict[str, CudaError]:
    named = {name: error for error in cuda_errors() for name in (error.runtime, error.driver) if name}
    return named | {error.text.lower(): error for error in cuda_errors() if error.text}


@cache
def _cuda_numbers() -> dict[int, CudaError]:
    return {error.number: error for error in cuda_errors()}


@cache
def _old_cuda_numbers() -> dict[int, CudaError]:
    return {error.old: error for error in cuda_errors() if error.old is not None}


def _cuda(groups: Groups) -> str:
    error = _cuda_names().get(groups.get("cuda_text", "").lower().strip(" .'\""))
    if error is None and (name := groups.get("cuda_name")):
        error = _cuda_names().get(name)
        if error is None:
            # A name that only looks like one of CUDA's.
            return "cuda-error" if name.startswith("CUDA_ERROR_") else ""
    if error is None and (number := groups.get("cuda_number") or groups.get("cuda_old_number")):
        tables = [_cuda_numbers(), _old_cuda_numbers()]
        if "cuda_old_number" in groups:
            tables.reverse()
        error = tables[0].get(int(number)) or tables[1].get(int(number))
        if error is None:
            return ""
    if error is not None:
        groups.pop("cuda_old_number", None)
        groups["cuda_number"] = str(error.number)
    return (error.cause if error else "") or "cuda-error"


def _status(groups: Groups) -> str:
    if name := groups.get("status"):
        return _by_name().get(name, "" if name.startswith("CUFFT_") else "cuda-error")
    number, family = groups["status_number"], groups["library"].lower()
    for known in statuses().families:
        if known.family.lower() == family:
            return _by_number(known.family).get(int(number), "cuda-error")
    return "cuda-error"


def _nvml(groups: Groups) -> str:
    if number := groups.get("nvml_number"):
        return _by_number("NVML").get(int(number), "nvml-error")
    told = groups["nvml"].rstrip(" .")
    if told in _by_name():
        return _by_name()[told]
    # A text that the table does not know may be another pattern's.
    return "nvml-error" if told.startswith(("NVML_ERROR_", "NVMLError_")) else _by_name().get(told.lower(), "")


def _xid(groups: Groups) -> str:
    return _xid_causes().get(int(groups["xid"]), "xid-other")


@cache
def _xid_causes() -> dict[int, str]:
    return {number: cause.id for cause in catalogue().causes.values() for number in cause.xids}


def _sxid(groups: Groups) -> str:
    known = sxid(int(groups["sxid"]))
    if known is None:
        return {"Fatal": "sxid-fatal", "Non-fatal": "sxid-nonfatal"}.get(groups.get("sxid_word", ""), "sxid-unknown")
    return "sxid-nonfatal" if known.class_ in _IN_SERVICE else "sxid-fatal"


_TABLES: tuple[tuple[str, str, Callable[[Groups], str]], ...] = (
    ("cuda-error", "cuda_name", _cuda),
    ("cuda-error", "cuda_text", _cuda),
    ("cuda-error", "cuda_number", _cuda),
    ("cuda-error", "cuda_old_number", _cuda),
    ("cuda-error", "status", _status),
    ("cuda-error", "status_number", _status),
    ("nvml-error", "nvml", _nvml),
    ("nvml-error", "nvml_number", _nvml),
    ("xid-other", "xid", _xid),
    ("sxid-unknown", "sxid", _sxid),
)


def meaning(cause: str, groups: Groups) -> str:
    """Return the cause that a family's name or number stands for; an empty text when it is no error at all."""
    for home, group, table in _TABLES:
        if cause == home and group in groups:
            return table(groups)
    return cause
