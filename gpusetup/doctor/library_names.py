"""What the number in a library's file name means, and what brings that library."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING

from gpusetup.doctor import library_packages as packages
from gpusetup.doctor.package_advice import package_fixes
from gpusetup.model.diagnosis import Fix

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NAME", "fixes_for", "number_told"]

NAME = re.compile(r"lib(?P<name>[A-Za-z]+)[\w-]*?\.so\.(?P<major>\d+)")
_TENSORRT = ("nvinfer", "nvonnxparser")
_NUMBERED_AS_CUDA = ("cudart", "cublas", "cublasLt", "nvrtc", "nvJitLink", "cupti")


def _named(library: str) -> tuple[str, str]:
    found = NAME.match(library)
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
    if name.startswith(_TENSORRT):
        return [f"{file} is TensorRT {major}, which is not part of CUDA."]
    majors = packages.cuda_majors(name, major)
    if name in _NUMBERED_AS_CUDA or majors == (int(major),):
        return [f"{file} belongs to CUDA {major}."]
    if majors:
        return [f"{file} comes with CUDA {_listed(majors)}: its number is the library's own, not the CUDA major."]
    return [f"The {major} of {file} is the library's own number, not the CUDA major."]


def _listed(majors: Iterable[int]) -> str:
    *some, last = map(str, majors)
    return f"{', '.join(some)} and {last}" if some else last


def fixes_for(
    cause: str, groups: dict[str, str], fixes: tuple[Fix, ...], manager: str | None = None
) -> tuple[Fix, ...]:
    """Name the packages that bring what the message misses; the catalogue's own fixes where it names none.

    `manager`: the machine's package manager; None: this machine's.
    """
    of_package = package_fixes(cause, groups)
    if cause not in {"cuda-library-missing", "cudnn-library-missing"}:
        return of_package or fixes
    name, major = _named(groups.get("library", ""))
    if not name:
        return of_package or fixes
    return (*of_package, *_of_library(name, major, fixes, manager))


def _of_library(name: str, major: str, fixes: tuple[Fix, ...], manager: str | None) -> tuple[Fix, ...]:
    manager = packages.manager_here() if manager is None else manager
    if name.startswith("cudnn"):
        return packages.of_cudnn(major, manager) or fixes
    if name == "nccl":
        return packages.of_nccl(manager)
    if name.startswith(_TENSORRT):
        text = f"TensorRT {major} as a wheel, for Python programs."
        return (Fix(text=text, commands=(f"python3 -m pip install {quote(f'tensorrt=={major}.*')}",)),)
    return packages.of_cuda(name, major, manager) or fixes
