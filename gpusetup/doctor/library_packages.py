"""Missing libraries: what the number in the file name means, and which wheels and packages contain the library."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from shlex import quote

from gpusetup.doctor.catalogue import read_table
from gpusetup.doctor.package_advice import package_fixes
from gpusetup.matrix.load import matrix
from gpusetup.model.diagnosis import Fix
from gpusetup.versions import cuda_minor, nv

WHEEL: dict[str, str] = json.loads(read_table("library_wheels.json"))
"""Library name → wheel. The major version of the wheel is the number in its files' names."""
_INSTALL = {"apt": "apt-get install", "dnf": "dnf install", "zypper": "zypper install"}
_FORM = {"apt": "deb", "dnf": "rpm", "zypper": "rpm"}


def manager_here() -> str:
    """Return this machine's package manager; empty if it has no known one."""
    return next((name for name, line in _INSTALL.items() if shutil.which(line.split()[0])), "")


@cache
def _wheels() -> Mapping[str, Mapping[int, str]]:
    """Return {wheel name without prefix and CUDA: {CUDA major: version}} from the pins of toolkits and torch."""
    found: dict[str, dict[int, str]] = {}
    toolkits = [(item.wheel, item.pins) for item in matrix().cuda.wheel_pins]
    frameworks = [("13" if "cuda-toolkit" in item.pins else "", item.pins) for item in matrix().torch.releases]
    for toolkit, pins in (*toolkits, *frameworks):
        for name, version in pins.items():
            stem, _, major = name.removeprefix("nvidia-").partition("-cu1")
            number = f"1{major}" if major else toolkit.partition(".")[0]
            if number.isdigit() and version[:1].isdigit():
                found.setdefault(stem, {})[int(number)] = version
    return found


def _pinned(name: str, number: str) -> dict[int, str]:
    """Return {CUDA major: requirement} for the wheels whose files have this number."""
    stem = "npp" if name.startswith("npp") else WHEEL.get(name, "")
    return {
        major: f"nvidia-{stem}" + (f"-cu{major}" if major < 13 or stem in _WITH_MAJOR else "") + f"=={number}.*"
        for major, version in sorted(_wheels().get(stem, {}).items())
        if version.partition(".")[0] == number
    }


_WITH_MAJOR = ("cusparselt", "nvshmem")
"""Wheels with the CUDA major in their names also for CUDA 13."""


def of_cuda(name: str, number: str, manager: str) -> tuple[Fix, ...]:
    """Return fixes that install a CUDA library; empty if it is not part of CUDA."""
    pinned = _pinned(name, number)
    if not pinned and name in WHEEL:
        return (_too_old(f"CUDA {number}"),)
    if not pinned:
        return ()
    which = "" if len(pinned) == 1 else "; take the CUDA that the program was built for"
    wheels = Fix(
        text=f"As a wheel, for Python programs{which}.",
        commands=tuple(f"python3 -m pip install {quote(wheel)}" for wheel in pinned.values()),
    )
    if name in ("cusparseLt", "nvshmem"):
        return (wheels,)  # not part of the toolkit
    newest = {major: _toolkit(major) for major in pinned}
    system = list(_system("cuda", manager, newest.items()))
    commands = [f"sudo gpusetup apply -w {quote(f'cuda=={major}.*')}" for major in pinned]
    return (
        wheels,
        Fix(text=f"Or the toolkit, for every program{which}.", commands=(*commands, "sudo ldconfig")),
        *_by_hand(system),
    )


def of_cudnn(number: str, manager: str) -> tuple[Fix, ...]:
    """Return fixes that install a cuDNN of this major."""
    releases = [item for item in matrix().cudnn.releases if item.version.partition(".")[0] == number]
    last = max(nv(item.version).major for item in matrix().cudnn.releases)
    newest: dict[int, str] = {}
    for item in sorted(releases, key=lambda release: nv(release.version)):
        newest |= dict.fromkeys(item.wheels, item.version)
    if not newest:
        return (_too_old(f"cuDNN {number}"),)
    wheels = [
        f"nvidia-cudnn-cu{major}=={f'{number}.*' if int(number) == last else version}"
        for major, version in sorted(newest.items())
    ]
    which = "; take the CUDA that it was built for" if len(wheels) > 1 else ""
    packages = _system("cudnn", manager, ((major, version) for major, version in sorted(newest.items())))
    return (
        Fix(
            text=f"cuDNN {number} as a wheel, for Python programs{which}.",
            commands=tuple(f"python3 -m pip install {quote(wheel)}" for wheel in wheels),
        ),
        Fix(
            text="Or for every program.",
            commands=(f"sudo gpusetup apply -w {quote(f'cudnn=={number}.*')}", "sudo ldconfig"),
        ),
        *_by_hand(list(packages)),
    )


def of_nccl(manager: str) -> tuple[Fix, ...]:
    """Return fixes that install NCCL."""
    builds = [build for item in matrix().nccl.releases for build in item.builds if build.kind == "wheel"]
    majors = sorted({int(build.cuda.partition(".")[0]) for build in builds if build.cuda})
    return (
        Fix(
            text="As a wheel, for Python programs; take the CUDA that the program was built for.",
            commands=tuple(f"python3 -m pip install nvidia-nccl-cu{major}" for major in majors[-2:]),
        ),
        Fix(text="Or for every program.", commands=("sudo gpusetup apply -w nccl", "sudo ldconfig")),
        *_by_hand(list(_system("nccl", manager, ((majors[-1], matrix().nccl.releases[-1].version),)))),
    )


def _too_old(what: str) -> Fix:
    return Fix(
        text=f"gpusetup does not know a package of {what}: use a build of the program for a newer one.",
        commands=("gpusetup matrix",),
    )


def _toolkit(major: int) -> str:
    return max((item.version for item in matrix().cuda.releases if nv(item.version).major == major), key=nv)


def _system(component: str, manager: str, versions: Iterable[tuple[int, str]]) -> Iterator[str]:
    rows = [
        row for row in matrix().repos.libraries if row.component == component and row.format == _FORM.get(manager, "")
    ]
    for major, version in versions:
        for row in rows:
            if (row.min_version is None or nv(version) >= nv(row.min_version)) and (
                row.max_version is None or nv(version) <= nv(row.max_version)
            ):
                minor = cuda_minor(version).replace(".", "-")
                yield f"sudo {_INSTALL[manager]} {row.packages[0].format(major=major, minor=minor)}"


def _by_hand(commands: list[str]) -> tuple[Fix, ...]:
    unique = tuple(dict.fromkeys(commands))
    return (Fix(text="The same by hand, where NVIDIA's repository is set up.", commands=unique),) if unique else ()


NAME = re.compile(r"lib(?P<name>[A-Za-z]+)[\w-]*?\.so\.(?P<major>\d+)")
_TENSORRT = ("nvinfer", "nvonnxparser")
_NUMBERED_AS_CUDA = ("cudart", "cublas", "cublasLt", "nvrtc", "nvJitLink", "cupti")


def _named(library: str) -> tuple[str, str]:
    found = NAME.match(library)
    return (found["name"], found["major"]) if found else ("", "")


def soname_advice(cause: str, groups: dict[str, str]) -> list[str]:
    """Return a sentence about what the number of a missing library means."""
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
    majors = list(_pinned(name, major))
    if name in _NUMBERED_AS_CUDA or majors == [int(major)]:
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
    """Return fixes that install the missing library or package, else the catalogue's own fixes.

    `manager` is the package manager to use; None means this machine's.
    """
    of_package = package_fixes(cause, groups)
    if cause not in {"cuda-library-missing", "cudnn-library-missing"}:
        return of_package or fixes
    name, major = _named(groups.get("library", ""))
    if not name:
        return of_package or fixes
    return (*of_package, *_of_library(name, major, fixes, manager))


def _of_library(name: str, major: str, fixes: tuple[Fix, ...], manager: str | None) -> tuple[Fix, ...]:
    manager = manager_here() if manager is None else manager
    if name.startswith("cudnn"):
        return of_cudnn(major, manager) or fixes
    if name == "nccl":
        return of_nccl(manager)
    if name.startswith(_TENSORRT):
        text = f"TensorRT {major} as a wheel, for Python programs."
        return (Fix(text=text, commands=(f"python3 -m pip install {quote(f'tensorrt=={major}.*')}",)),)
    return of_cuda(name, major, manager) or fixes
