"""The driver compiles PTX: that of this NVRTC, and every version up to that of the driver's own CUDA.

With a toolkit newer than the driver (minor-version compatibility) machine code runs and newer PTX does not: a program
that hands the driver PTX (Numba without pynvjitlink, `nvcc -arch=compute_NN`, NVRTC with compute_NN) stops with CUDA
error 222. CuPy, Triton and `torch.compile` hand over machine code and work, so this is a warning.

The highest version that the driver takes is found by loading an empty kernel of each version.

To do: for such programs, a driver of the toolkit's own branch or newer, or an older toolkit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.checks.smoke import _part
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check, from_items
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

_TOO_NEW = 222


@check("cuda.ptx", "The driver compiles PTX", needs=("gpu", "python", "context"), seconds=_part.seconds("ptx"))
def judge(machine: Machine) -> Finding:
    """Judge a kernel that went through PTX, and the highest version that the driver takes."""
    found, versions = [], set()
    for item, (key, worker) in zip(_part.items(machine, "ptx", _judge), machine.workers.items(), strict=True):
        smoke = worker.get("smoke", {})
        versions.add(str(smoke.get("ptx", {}).get("ptx_version")))
        found.append(_with_highest(item, key, smoke))
    return from_items(found, f"PTX {', '.join(sorted(versions - {'None'}))} compiled and run{_up_to(machine)}")


def _judge(answer: dict[str, Any]) -> tuple[bool, str]:
    return answer.get("wrong") == 0, "" if answer.get("wrong") == 0 else f"{answer.get('wrong')} wrong elements"


def _highest(smoke: dict[str, Any]) -> str | None:
    found = smoke.get("ptx_versions", {}).get("highest")
    return str(found) if found else None


def _up_to(machine: Machine) -> str:
    found = {highest for worker in machine.workers.values() if (highest := _highest(worker.get("smoke", {})))}
    return f"; the driver takes PTX up to {min(found, key=nv)}" if found else ""


def _with_highest(item: Item, key: str, smoke: dict[str, Any]) -> Item:
    """Take the highest version into account: what is merely newer than the driver is a warning."""
    sweep, highest = smoke.get("ptx_versions", {}), _highest(smoke)
    if "error" in sweep and item.verdict == "pass":
        return Item(
            subject=f"GPU {key}", verdict="warn", text=f"its highest PTX version is not known: {explain(sweep)}"
        )
    if highest is None:
        return item
    if item.verdict == "fail" and smoke.get("ptx", {}).get("status") == _TOO_NEW:
        text = (
            f"this NVRTC writes newer PTX than the driver compiles (up to {highest}): programs that hand it PTX stop "
            "with error 222; Triton, torch.compile and CuPy work"
        )
        return Item(subject=f"GPU {key}", verdict="warn", text=text)
    expected = _promised(smoke.get("libraries", {}).get("driver_cuda"))
    if item.verdict == "pass" and expected is not None and nv(highest) < nv(expected[1]):
        text = f"compiles PTX up to {highest}, where its CUDA {expected[0]} means {expected[1]}"
        return Item(subject=f"GPU {key}", verdict="warn", text=text, measured=highest, expected=expected[1])
    return item


def _promised(driver_cuda: int | None) -> tuple[str, str] | None:
    """Return the CUDA release of a driver and the PTX version that belongs to it, when the matrix knows it."""
    from gpusetup.matrix.load import matrix

    if not driver_cuda:
        return None
    minor = f"{driver_cuda // 1000}.{driver_cuda % 1000 // 10}"
    ptx = next((row.ptx for row in matrix().cuda.toolchains if row.minor == minor), "")
    return (minor, ptx) if ptx else None
