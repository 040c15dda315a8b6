"""Advice about the Python package in a message: its releases by torch, CUDA and Python, from the matrix."""

import json
import re
from collections.abc import Iterable
from shlex import quote
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gpusetup.doctor.catalogue import read_table
from gpusetup.matrix.load import matrix
from gpusetup.model.diagnosis import Fix
from gpusetup.model.packages import PackageFile, PackageRelease, major_of_extra
from gpusetup.model.request import PACKAGES
from gpusetup.resolve.naming import nearest
from gpusetup.versions import nv

_NAMES: dict[str, str] = json.loads(read_table("package_names.json"))
"""Package names in messages → their names on PyPI."""
_TAGS = re.compile(r"-(?:cp|py)(?P<major>\d)(?P<minor>\d+)-(?:(?:cp|py)\w+|none|abi3)-(?P<platform>[\w.]+)\.whl")
_GLIBC = re.compile(r"manylinux_(\d+_\d+)")
_PINNED = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?:\[[^\]]*\])?\s*==\s*(?P<version>\w[\w.]*)")
_MAJOR = re.compile(r"\.so\.(\d+)")


class _Advice(NamedTuple):
    told: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()


_NONE = _Advice()


def version_advice(cause: str, groups: dict[str, str]) -> list[str]:
    """Return sentences about the package's releases that match the versions in a message."""
    return list(_advice(cause, groups).told)


def package_fixes(cause: str, groups: dict[str, str]) -> tuple[Fix, ...]:
    """Return fixes that install the matching release; empty if the message names no known package."""
    return _advice(cause, groups).fixes


def _advice(cause: str, groups: dict[str, str]) -> _Advice:
    if cause == "pip-no-such-build":
        return _of_wheel(groups["wheel"]) if "wheel" in groups else _of_requirement(groups.get("requirement", ""))
    if cause == "torch-toolkit-mismatch":
        return _of_toolkit(groups.get("cuda_wanted", ""))
    name = _package(groups.get("package", ""))
    if not name:
        return _NONE
    file = matrix().package(name)
    if cause == "torch-abi-mismatch":
        return _of_torch(file, groups.get("torch", ""))
    if cause == "cuda-library-missing":
        return _of_library(file, groups)
    return _of_gpu(file) if cause == "gpu-lacks-feature" else _NONE


def _package(text: str) -> str:
    name = text.split(", ", maxsplit=1)[0].lower().replace("_", "-").removesuffix("-2-cuda")
    name = _NAMES.get(name, name)
    return name if name in PACKAGES else ""


def _newest(file: PackageFile) -> list[PackageRelease]:
    final = [item for item in file.releases if item.kind != "placeholder" and not Version(item.version).is_prerelease]
    return sorted(final, key=lambda item: Version(item.version), reverse=True)


def _span(releases: list[PackageRelease]) -> str:
    last, first = releases[0].version, releases[-1].version
    return last if first == last else f"{first} to {last}"


def _install(file: PackageFile, release: PackageRelease) -> str:
    extras = [extra for extra in release.extras if not major_of_extra(extra)]  # the user chooses the CUDA major
    wanted = f"{file.name}[{','.join(extras)}]" if extras else file.name
    return f"python3 -m pip install {quote(f'{wanted}=={release.version}')}"


def _fix(text: str, *commands: str) -> Fix:
    return Fix(text=text, commands=commands)


def _of_torch(file: PackageFile, torch: str) -> _Advice:
    name, releases = file.name, _newest(file)
    if releases and all(item.kind == "source" for item in releases):
        line = f"python3 -m pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps {name}"
        told = f"{name} has no wheels on the index: building it needs {file.build}."
        return _Advice((told,), (_fix("Build it again against the torch that is installed.", line),))
    there = torch.split(", ", maxsplit=1)[0].partition("+")[0]
    fitting = [item for item in releases if there and _asks_for(item, there)]
    if fitting:
        told = f"{name} {fitting[0].version} belongs to torch {there}."
        return _Advice((told,), (_fix("Install the pair that belongs together.", _install(file, fitting[0])),))
    commands = (f"gpusetup matrix {name}", f"gpusetup resolve {name} --install pip")
    return _Advice((), (_fix(f"Look up which {name} belongs to which torch, or install both again.", *commands),))


def _asks_for(release: PackageRelease, torch: str) -> bool:
    wanted = release.requires.get("torch", "any")
    try:
        return wanted.startswith("==") and Version(torch) in SpecifierSet(wanted)
    except InvalidVersion:
        return False


def _of_library(file: PackageFile, groups: dict[str, str]) -> _Advice:
    if file.name == "bitsandbytes":
        return _of_bitsandbytes(file, groups.get("bnb", ""))
    if file.name == "numba-cuda":
        commands = ("python3 -m pip install 'numba-cuda[cu13]'", "python3 -m pip install 'numba-cuda[cu12]'")
        told = "Numba finds NVVM in these wheels, or in the toolkit that CUDA_HOME names."
        return _Advice((told,), (_fix("As wheels; take the CUDA of the driver or of torch.", *commands),))
    releases = _newest(file)
    by_major: dict[str, list[PackageRelease]] = {}
    for release in releases:
        for major in {minor.partition(".")[0] for minor in release.cuda}:
            by_major.setdefault(major, []).append(release)
    spans = tuple(f"{file.name} {_span(by_major[major])} is built for CUDA {major}." for major in sorted(by_major))
    wanted = _MAJOR.search(groups.get("library", ""))
    if wanted is None or wanted[1] not in by_major:
        line = _install(file, releases[0])
        return _Advice(spans, (_fix(f"Install {file.name} with the libraries that it asks for.", line),))
    line = _install(file, by_major[wanted[1]][0])
    return _Advice(
        spans,
        (
            _fix("Let the resolver choose for this driver.", f"gpusetup resolve {file.name} --install pip"),
            _fix(f"Or take the last release for CUDA {wanted[1]}, with the libraries that it asks for.", line),
        ),
    )


def _of_bitsandbytes(file: PackageFile, number: str) -> _Advice:
    """Advise the releases that contain the wanted library: one wheel contains one per CUDA."""
    releases, number = _newest(file), number.split(", ", maxsplit=1)[0]
    if not number:
        text = "Install the newest release: its wheel holds a library for each CUDA of torch."
        return _Advice((), (_fix(text, _install(file, releases[0])),))
    cuda = f"{number[:-1]}.{number[-1]}"
    holding = [item for item in releases if cuda in item.cuda]
    if not holding:
        return _Advice((f"No release of bitsandbytes holds a library for CUDA {cuda}.",))
    told = f"libbitsandbytes_cuda{number}.so is for CUDA {cuda}: bitsandbytes {_span(holding)} holds it."
    unset = _fix("And let torch decide which one is loaded.", "unset BNB_CUDA_VERSION")
    return _Advice((told,), (_fix("Install a release that holds it.", _install(file, holding[0])), unset))


def _of_gpu(file: PackageFile) -> _Advice:
    floors = {item.cc_min for item in _newest(file) if item.cc_min}
    told = [f"{file.name} supports compute capability {min(floors, key=nv)} and newer."] if floors else []
    return _Advice(tuple(told))


def _of_toolkit(wanted: str) -> _Advice:
    cuda = re.match(r"\d+\.\d+", wanted)
    if cuda is None:
        return _NONE
    path = f"/usr/local/cuda-{cuda[0]}"
    commands = (f"sudo gpusetup apply -e gpusetup_cuda={cuda[0]}.*", f"export CUDA_HOME={path} PATH={path}/bin:$PATH")
    return _Advice((), (_fix("Also install the toolkit of torch's CUDA and name it.", *commands),))


def _of_wheel(wheel: str) -> _Advice:
    """Explain for which Python, platform and glibc a wheel is, from its file name."""
    tags = _TAGS.search(wheel)
    if tags is None:
        return _NONE
    told = [f"The file is for Python {tags['major']}.{tags['minor']} on {tags['platform']}."]
    floors = [text.replace("_", ".") for text in _GLIBC.findall(tags["platform"])]
    told += [f"It needs glibc {min(floors, key=nv)} or newer."] if floors else []
    name = _package(wheel.rpartition("/")[2].partition("-")[0])
    line = f"gpusetup resolve {name} --install pip"
    fixes = (_fix("Let the resolver choose; name your system with --os or your Python with --python.", line),)
    return _Advice(tuple(told), fixes if name else ())


def _of_requirement(text: str) -> _Advice:
    """Advise the Pythons of the wanted release, or the nearest releases if it does not exist."""
    name = (re.match(r"[\w.-]*", text) or [""])[0].lower().replace("_", "-")
    known = _pythons(name)
    if not known:
        return _NONE
    asked = _PINNED.match(text)
    if asked is None:
        return _Advice((), (_fix("Ask the matrix what each release needs.", f"gpusetup matrix {name}"),))
    version = asked["version"]
    if version in known:
        pythons = known[version]
        told = f"{name} {version} has wheels for Python {pythons[0]} to {pythons[-1]}." if pythons else ""
        line = f"gpusetup resolve {quote(f'{name}=={version}')} --install uv"
        return _Advice((told,) if told else (), (_fix("Make an environment with one of these Pythons.", line),))
    return _Advice(
        (f"The index has no {name} {version}; the nearest are {_near(known, version)}.",),
        (_fix("Ask the matrix what each release needs.", f"gpusetup matrix {name}"),),
    )


def _pythons(name: str) -> dict[str, tuple[str, ...]]:
    if name == "torch":
        return {row.version: row.pythons for row in matrix().torch.releases}
    if not _package(name):
        return {}
    return {row.version: row.pythons.get("x86_64", ()) for row in matrix().package(_package(name)).releases}


def _near(known: Iterable[str], wanted: str) -> str:
    try:
        return ", ".join(nearest(sorted(known, key=Version), wanted))
    except InvalidVersion:
        return max(known, key=Version)
