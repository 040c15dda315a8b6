"""The candidate values of each component: one per release or build, with everything that the rules compare."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpusetup.model.record import Confidence
from gpusetup.model.release import (
    CudaRelease,
    CudnnSupport,
    CupyRelease,
    DriverBranch,
    JaxRelease,
    NcclBuild,
    NcclRelease,
    TensorflowRelease,
    TorchBuild,
    TorchRelease,
)
from gpusetup.model.request import PACKAGES, ModuleFlavour
from gpusetup.versions import NvVersion, cuda_minor, named_exactly, nv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.packages import PackageFile, PackageRelease
    from gpusetup.model.release import CudnnRelease, DriverVersion
    from gpusetup.model.request import DriverCandidate, Request, Requirement


class PackageValue(Struct, frozen=True):
    """A release of a package above the frameworks."""

    version: str
    file: "PackageFile"
    release: "PackageRelease"
    confidence: str


@lru_cache(maxsize=64)
def package_values(matrix: Matrix, name: str) -> list[PackageValue]:
    """Return every release of a package."""
    file = matrix.package(name)
    return [PackageValue(item.version, file, item, item.confidence) for item in file.releases]


_PLAIN = r"[0-9]+(?:\.[0-9]+)*"
"""A version that can be the beginning of a longer one; 2.7.1rc1 and 2.7.1+cpu cannot."""
PYTHONS = tuple(f"3.{minor}" for minor in range(5, 16))
_PATCHES = 40
"""More patch releases than any Python minor has had."""
OPEN_MODULES_FROM = 515
"""First branch with open kernel modules."""
OPEN_ONLY_FROM = 615
"""First branch without proprietary ones."""


class DriverValue(Struct, frozen=True):
    """A driver release with one flavour of its kernel module."""

    version: str
    number: NvVersion
    branch: DriverBranch
    module: ModuleFlavour
    confidence: Confidence
    ended: bool
    known: bool = True


class CudaValue(Struct, frozen=True):
    """A CUDA toolkit release."""

    version: str
    release: CudaRelease
    confidence: Confidence


class CudnnValue(Struct, frozen=True):
    """A cuDNN release with one row of NVIDIA's support matrix; `leaning`: the row is that of another version."""

    version: str
    row: CudnnSupport
    cuda_majors: tuple[int, ...]
    leaning: bool
    confidence: Confidence


class NcclValue(Struct, frozen=True):
    """An NCCL build."""

    version: str
    release: NcclRelease
    build: NcclBuild
    confidence: Confidence


class TorchValue(Struct, frozen=True):
    """A torch build."""

    version: str
    build: TorchBuild
    release: TorchRelease
    confidence: Confidence


class TensorflowValue(Struct, frozen=True):
    """A TensorFlow release."""

    version: str
    release: TensorflowRelease
    confidence: Confidence


class JaxValue(Struct, frozen=True):
    """A JAX release for one CUDA major."""

    version: str
    release: JaxRelease
    confidence: Confidence


class CupyValue(Struct, frozen=True):
    """A CuPy wheel."""

    version: str
    release: CupyRelease
    confidence: Confidence


class PythonValue(Struct, frozen=True):
    """A Python minor version."""

    version: str
    confidence: Confidence = "vendor"


Value = (
    DriverValue
    | CudaValue
    | CudnnValue
    | NcclValue
    | TorchValue
    | TensorflowValue
    | JaxValue
    | CupyValue
    | PackageValue
    | PythonValue
)


@lru_cache(maxsize=8192)
def parsed(version: str) -> Version:
    """Return a version text as a comparable Version."""
    from packaging.version import Version

    return Version(version)


def number(value: Value) -> Version | NvVersion:
    """Return the comparable version of a value; only packages of Python have more than numbers in theirs."""
    of_python = isinstance(value, TensorflowValue | JaxValue | CupyValue | PackageValue)
    return parsed(value.version) if of_python else nv(value.version)


def branch_of(matrix: Matrix, version: str) -> DriverBranch | None:
    """Return a driver's branch, or the nearest known older branch; None below the oldest."""
    wanted = nv(version).major
    below = [branch for branch in matrix.driver.branches if branch.branch <= wanted and branch.latest is not None]
    return max(below, key=lambda branch: branch.branch, default=None)


def flavours_of(branch: int) -> tuple[ModuleFlavour, ...]:
    """Return the kernel module flavours that a branch ships."""
    if branch < OPEN_MODULES_FROM:
        return ("proprietary",)
    return ("open",) if branch >= OPEN_ONLY_FROM else ("open", "proprietary")


def _worth_keeping(versions: list[DriverVersion]) -> Iterable[DriverVersion]:
    """Yield a branch's newest driver and newest vendor-confirmed one: rules set only lower bounds within a branch."""
    newest = max(versions, key=lambda item: nv(item.version))
    yield newest
    vendor = [item for item in versions if item.confidence == "vendor"]
    if vendor and (best := max(vendor, key=lambda item: nv(item.version))) is not newest:
        yield best


@lru_cache(maxsize=8)
def _published(matrix: Matrix) -> dict[int, list[DriverVersion]]:
    by_branch: dict[int, list[DriverVersion]] = {}
    for item in matrix.driver.versions:
        if item.platform == "linux":
            by_branch.setdefault(item.branch, []).append(item)
    return by_branch


@lru_cache(maxsize=4096)
def specifiers(text: str) -> SpecifierSet:
    """Return a specifier that also takes pre-releases."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text, prereleases=True)


@lru_cache(maxsize=16384)
def _named(specifier: str, version: str) -> bool:
    exactly = named_exactly(specifier, version)
    return specifiers(specifier).contains(parsed(version)) if exactly is None else exactly


def matches(requirement: Requirement, versions: Iterable[str]) -> set[str]:
    """Return the versions that meet a requirement by PEP 440, else those that begin with it (cudnn==9.10.2)."""
    versions = list(versions)
    if not requirement.specifier:
        return set(versions)
    specifier = requirement.specifier
    if requirement.component == "python":
        # The matrix has Python minors only; requirements may name patch releases (==3.12.3, >=3.10.4).
        return {minor for minor in versions if any(_named(specifier, f"{minor}.{patch}") for patch in range(_PATCHES))}
    found = {version for version in versions if _named(specifier, version)}
    if found or not all(part.operator == "==" for part in specifiers(specifier)):
        return found
    if not all(re.fullmatch(_PLAIN, part.version) for part in specifiers(specifier)):
        return set()
    wanted = [parsed(part.version).release for part in specifiers(specifier)]
    return {version for version in versions if all(parsed(version).release[: len(part)] == part for part in wanted)}


def _drivers(matrix: Matrix, request: Request) -> list[DriverValue]:
    named = next((item for item in request.requirements if item.component == "driver"), None)
    return _drivers_for(matrix, named, request.driver, request.installed_driver, request.driver_candidates or ())


@lru_cache(maxsize=256)
def _drivers_for(
    matrix: Matrix,
    named: Requirement | None,
    stays: str | None,
    installed: str | None,
    candidates: tuple[DriverCandidate, ...],
) -> list[DriverValue]:
    branches = {branch.branch: branch for branch in matrix.driver.branches}
    chosen: dict[str, tuple[DriverBranch, Confidence, tuple[ModuleFlavour, ...], bool]] = {}
    for number_, versions in _published(matrix).items():
        branch = branches.get(number_)
        if branch is None:
            continue
        final = [item for item in versions if not item.beta]
        wanted = list(_worth_keeping(final)) if final else []
        if named is not None and named.specifier:
            hits = matches(named, [item.version for item in versions])
            asked = [item for item in versions if item.version in hits]
            wanted += _worth_keeping([item for item in asked if not item.beta] or asked) if asked else []
        for item in wanted:
            chosen[item.version] = (branch, item.confidence, flavours_of(number_), True)
    listed = {item.version: item for versions in _published(matrix).values() for item in versions}
    offered = {item.version: item.modules for item in candidates}
    for version in (stays, installed, *offered):
        if version is None or (version in chosen and version not in offered):
            continue
        judge = branch_of(matrix, version)
        if judge is None:
            continue
        record = listed.get(version)
        flavours = offered.get(version) or flavours_of(nv(version).major)
        chosen[version] = (judge, record.confidence if record else "observed", flavours, record is not None)
    return [
        DriverValue(version, nv(version), branch, module, confidence, branch.has_ended(matrix.date), known)
        for version, (branch, confidence, flavours, known) in chosen.items()
        for module in flavours
    ]


_PER_RELEASE: dict[str, Callable[..., Value]] = {
    "cuda": CudaValue,
    "tensorflow": TensorflowValue,
    "jax": JaxValue,
    "cupy": CupyValue,
}
"""The components with one value per release."""


@lru_cache(maxsize=32)
def _per_release(matrix: Matrix, name: str) -> list[Value]:
    return [_PER_RELEASE[name](item.version, item, item.confidence) for item in getattr(matrix, name).releases]


@lru_cache(maxsize=1024)
def _release_key(version: str) -> tuple[int, ...]:
    return nv(version).numbers[:3]


RowsByMajor = dict[int, dict[tuple[int, ...], list[CudnnSupport]]]
"""CUDA major → cuDNN version → the support rows for both."""


@lru_cache(maxsize=8)
def _rows_by_major(matrix: Matrix) -> RowsByMajor:
    found: RowsByMajor = {}
    for row in matrix.cudnn.support:
        for cuda_major in {nv(minor).major for minor in row.cuda}:
            found.setdefault(cuda_major, {}).setdefault(_release_key(row.version), []).append(row)
    return found


def _support_rows(release: CudnnRelease, rows: RowsByMajor) -> Iterable[tuple[CudnnSupport, bool]]:
    """Yield the rows for a release, per CUDA major: its own, else the general rows of the nearest older version.

    If no older version has a row for that major (9.12.0 brought CUDA 13, its first row is 9.17.0), use the next newer.
    """
    key = _release_key(release.version)
    for cuda_major in release.cuda_majors:
        speaking = rows.get(cuda_major, {})
        own = speaking.get(key, [])
        yield from ((row, False) for row in own)
        if any(row.general for row in own):
            continue
        general = [other for other, listed in speaking.items() if other[0] == key[0] and any(r.general for r in listed)]
        lower, higher = [other for other in general if other < key], [other for other in general if other > key]
        if lower or higher:
            nearest = max(lower) if lower else min(higher)
            yield from ((row, True) for row in speaking[nearest] if row.general)


@lru_cache(maxsize=64)
def rows_of_cudnn(matrix: Matrix, version: str) -> list[CudnnSupport]:
    """Return the support rows for the releases that begin with the same three numbers."""
    key, rows = _release_key(version), _rows_by_major(matrix)
    same = (release for release in matrix.cudnn.releases if _release_key(release.version) == key)
    return [row for release in same for row, _ in _support_rows(release, rows)]


@lru_cache(maxsize=8)
def _cudnns(matrix: Matrix) -> list[CudnnValue]:
    rows = _rows_by_major(matrix)
    return [
        CudnnValue(release.version, row, release.cuda_majors, leaning, release.confidence)
        for release in matrix.cudnn.releases
        for row, leaning in _support_rows(release, rows)
    ]


@lru_cache(maxsize=8)
def _nccls(matrix: Matrix) -> list[NcclValue]:
    return [
        NcclValue(release.version, release, build, release.confidence)
        for release in matrix.nccl.releases
        for build in release.builds
    ]


@lru_cache(maxsize=8)
def _torches(matrix: Matrix) -> list[TorchValue]:
    releases = {item.version: item for item in matrix.torch.releases}
    return [
        TorchValue(build.version, build, releases[build.version], build.confidence)
        for build in matrix.torch.builds
        if build.version in releases
    ]


def domain(component: str, matrix: Matrix, request: Request) -> Sequence[Value]:
    """Return every candidate value of a component, before any rule applies."""
    if component == "driver":
        return _drivers(matrix, request)
    if component in PACKAGES:
        return package_values(matrix, component)
    if component == "python":
        return [PythonValue(version) for version in PYTHONS]
    if component in _PER_RELEASE:
        return _per_release(matrix, component)
    builders: dict[str, Callable[[Matrix], Sequence[Value]]] = {"cudnn": _cudnns, "nccl": _nccls, "torch": _torches}
    return builders[component](matrix)


def minor_of(value: Value) -> str:
    """Return the CUDA minor that a value contains or was built for."""
    if isinstance(value, CudaValue):
        return value.release.minor
    if isinstance(value, TorchValue):
        return value.build.cuda
    if isinstance(value, TensorflowValue):
        return cuda_minor(value.release.cuda)
    if isinstance(value, NcclValue):
        return cuda_minor(value.build.cuda)
    raise TypeError(type(value).__name__)
