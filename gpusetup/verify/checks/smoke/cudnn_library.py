"""The host's own cuDNN can be loaded and opens the GPU: what programs outside a Python environment use.

Judged when the loader finds a cuDNN, or when the record says that packages brought one. Its version must be the one on
record. One that loads and cannot open the GPU finds no usable GPU (see cuda.context), or its parts differ in version.

To do: install the packages again (`gpusetup apply`); remove copies of libcudnn from LD_LIBRARY_PATH and /usr/local.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check, in_packages

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def _seconds(machine: Machine) -> float:
    return float((machine.sections.get("cudnn") or {}).get("seconds", 0))


@check(
    "cudnn.library",
    "The host's own cuDNN loads",
    needs=("gpu",),
    seconds=_seconds,
    asked=in_packages("cudnn"),
)
def judge(machine: Machine) -> Finding:
    """Judge loading, opening and the version."""
    answer, packaged = machine.sections.get("cudnn"), machine.wanted.packages("cudnn")
    if not isinstance(answer, dict):
        if packaged:
            return Finding("fail", "the record has cuDNN's packages, but the loader finds no libcudnn")
        return Finding("skip", "no cuDNN is installed on the system")
    if answer.get("error") == "load":
        return Finding("fail", f"it cannot be loaded: {answer.get('message')}")
    if answer.get("error") == "open":
        version = _version(int(answer.get("version") or 0))
        return Finding("fail", f"cuDNN {version} loads but cannot open the GPU: {answer.get('message')}")
    if answer.get("error"):
        return Finding("fail", explain(answer))
    version = _version(int(answer.get("version") or 0))
    wanted = machine.wanted.version("cudnn") if packaged else None
    if wanted is not None and wanted.split(".")[:3] != version.split("."):
        where = ", ".join((answer.get("loaded") or {}).get("libcudnn") or ())
        text = f"cuDNN {version} is loaded, {wanted} is on record" + (f": {where}" if where else "")
        return Finding("fail", text, version, wanted)
    return Finding("pass", f"cuDNN {version} opens the GPU", version, wanted)


def _version(number: int) -> str:
    """Return 9.28.0 for 92800; up to cuDNN 8 a thousand is a major: 8.9.7 for 8907."""
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"
