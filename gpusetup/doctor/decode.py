"""What the numbers in messages mean: CUDA's error numbers, the driver's API number, Xid numbers, capabilities."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.doctor.catalogue import catalogue, cuda_errors
from gpusetup.doctor.meanings import meaning
from gpusetup.doctor.scan import scan

if TYPE_CHECKING:
    from gpusetup.model.diagnosis import CudaError

__all__ = ["CAPABILITY", "WORDS", "api_version", "bare_numbers", "capability", "cuda_error"]

WORDS = {
    "xid": re.compile(r"xid\D{0,3}(\d{1,3})", re.IGNORECASE),
    "sxid": re.compile(r"sxid\D{0,3}(\d{5})", re.IGNORECASE),
    "api": re.compile(r"(?:\D*\s)?\(?(?:version\s*)?(1[0-9]0[0-9]0)\)?", re.IGNORECASE),
    "error": re.compile(
        r"(?:(?:cuda|driver|runtime|api|cudaerror|cuda_error|error|code|status|failed|with|call|the|number)[\s:=#_]*)*"
        r"\(?(\d{1,3})\)?",
        re.IGNORECASE,
    ),
    "needs": re.compile(r"(?:requires?\s+)?cuda\s*>=\s*(\d+\.\d+)", re.IGNORECASE),
    "code": re.compile(r"(?:sm|compute)_(\d{2,3})[af]?", re.IGNORECASE),
}

CAPABILITY = re.compile(r"(?:sm_|compute_)(\d+)(\d)[af]?|(\d+)\.(\d)")


def api_version(number: int) -> str:
    """Return the CUDA version behind the driver's or runtime's number: 11040 is 11.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def capability(text: str) -> str | None:
    """Return the compute capability that `sm_90a`, `compute_120` or `9.0` name."""
    found = CAPABILITY.fullmatch(text)
    return ".".join(filter(None, found.groups())) if found else None


def cuda_error(number: int) -> CudaError | None:
    """Return the CUDA error with this number."""
    return next((error for error in cuda_errors() if error.number == number), None)


def bare_numbers(text: str) -> list[tuple[str, dict[str, str]]]:
    """Recognise a text that is little more than a number: `802`, `Xid 79`, `11040`, `CUDA error: 222`, `cuda>=12.8`."""
    text = text.strip().strip(".!\"'`")
    found = {name: match[1] for name, expression in WORDS.items() if (match := expression.fullmatch(text))}
    if "sxid" in found:
        groups = {"sxid": found["sxid"]}
        return [(meaning("sxid-unknown", groups), groups)]
    if "xid" in found:
        return [(match.cause, {"xid": found["xid"]}) for match in scan(f"NVRM: Xid (PCI:0000:00:00): {found['xid']}, ")]
    if "api" in found:
        return [("driver-too-old", {"driver_api": found["api"]})]
    if "needs" in found:
        return [("container-cuda-requirement", {"needs_cuda": found["needs"]})]
    if "error" in found and (error := cuda_error(int(found["error"]))):
        cause = error.cause if error.cause in catalogue() else "cuda-error"
        return [(cause, {"cuda_number": found["error"]})]
    return []
