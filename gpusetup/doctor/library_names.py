"""What the number in a library's file name means, and which of a cause's fixes belong to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.model.diagnosis import Fix

__all__ = ["fixes_for", "number_told"]

_NAME = re.compile(r"lib(?P<name>[A-Za-z]+)[\w-]*?\.so\.(?P<major>\d+)")
_OF_CUDA = ("cudart", "cublas", "cublasLt", "nvrtc", "nvJitLink")
_OF_12 = {"cusolver": "11", "cufft": "11", "curand": "10"}


def _named(library: str) -> tuple[str, str]:
    found = _NAME.match(library)
    return (found["name"], found["major"]) if found else ("", "")


def number_told(cause: str, groups: dict[str, str]) -> list[str]:
    """Say what the number of a missing library stands for."""
    name, major = _named(groups.get("library", ""))
    if cause not in {"cuda-library-missing", "cudnn-library-missing"} or not name:
        return []
    file = f"lib{name}.so.{major}"
    if name.startswith("cudnn"):
        return [f"{file} is cuDNN {major}."]
    if name == "nccl":
        return [f"{file} is NCCL {major}; it comes for every CUDA major."]
    if name in _OF_CUDA:
        return [f"{file} belongs to CUDA {major}."]
    if _OF_12.get(name) == major:
        return [f"{file} comes with CUDA 12: its number is the library's own, not the CUDA major."]
    return [f"The {major} of {file} is the library's own number, not the CUDA major."]


def fixes_for(cause: str, groups: dict[str, str], fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Leave out the fixes that install another library, or another major, than the message asks for."""
    name, major = _named(groups.get("library", ""))
    if cause == "cudnn-library-missing" and name.startswith("cudnn"):
        return tuple(fix for fix in fixes if not _installs_other(fix, "nvidia-cudnn", major)) or fixes
    if cause == "cuda-library-missing":
        own = tuple(fix for fix in fixes if ("nvidia-nccl" in " ".join(fix.commands)) == (name == "nccl"))
        return own or fixes
    return fixes


def _installs_other(fix: Fix, package: str, major: str) -> bool:
    pinned = re.findall(rf"{package}\S*==(\d+)\.", " ".join(fix.commands))
    return bool(pinned) and major not in pinned
