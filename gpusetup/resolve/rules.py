"""The compatibility rules, one small function each, without any search.

How a CUDA runs on a driver (`relation`: natively, by minor-version or forward compatibility), how code runs on a GPU.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gpusetup.versions import NvVersion, cuda_minor, nv

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.release import ArchCode, CudnnSupport
    from gpusetup.model.request import Relation
    from gpusetup.resolve.domains import DriverValue

CudaNeed = tuple[str, int, str]
"""What a CUDA runtime needs: its minor, the driver branch it shipped with, the driver in its release notes or ""."""

FIRST_WITH_MINOR_COMPATIBILITY = 11
Way = Literal["sass", "ptx"]


@lru_cache(maxsize=4096)
def major(version: str) -> int:
    """Return the first number of a version."""
    return int(version.partition(".")[0])


@lru_cache(maxsize=256)
def need_of_minor(matrix: Matrix, minor: str) -> CudaNeed:
    """Return what a runtime of this minor needs: that of its first release, since wheels name no update."""
    releases = [item for item in matrix.cuda.releases if item.minor == minor]
    if not releases:
        older = [item for item in matrix.cuda.releases if nv(item.minor) > nv(minor)]
        releases = [min(older, key=lambda item: nv(item.version))] if older else [matrix.cuda.releases[-1]]
    first = min(releases, key=lambda item: nv(item.version))
    return (minor, first.driver_branch, first.driver or "")


@lru_cache(maxsize=32)
def _floor(matrix: Matrix, cuda_major: int) -> NvVersion | None:
    for row in matrix.cuda.majors:
        if row.major == cuda_major:
            return nv(row.min_driver)
    return None


@lru_cache(maxsize=64)
def compat_bases(matrix: Matrix, minor: str) -> frozenset[int]:
    """Return the driver branches on which a minor's cuda-compat package works."""
    rows = [row for row in matrix.forward_compat.packages if row.cuda == minor]
    return frozenset(branch for row in rows for branch in row.base_branches)


def relation(matrix: Matrix, driver: DriverValue, need: CudaNeed, *, forward: bool) -> Relation | None:
    """Return the best relation by which a CUDA runtime runs on a driver, or None if it does not run."""
    minor, branch, listed = need
    if driver.branch.branch > branch:
        return "backward"
    if driver.branch.branch == branch and (not listed or not driver.known or driver.number >= nv(listed)):
        return "native"
    floor = _floor(matrix, major(minor))
    if floor is not None and major(minor) >= FIRST_WITH_MINOR_COMPATIBILITY and driver.number >= floor:
        return "minor-version"
    if forward and driver.branch.branch in compat_bases(matrix, minor):
        return "forward"
    return None


def code_for(code: ArchCode | None, cc: str) -> Way | None:
    """Return how a build runs on a GPU, or None if it does not."""
    return None if code is None else way_of(code.targets, code.ptx, cc)


@lru_cache(maxsize=4096)
def way_of(targets: tuple[str, ...], ptx: tuple[str, ...], cc: str, *, jit: bool = True) -> Way | None:
    """Return how code runs on a GPU: `sass` (a cubin), `ptx` (compiled by the driver at the first start), or None.

    A cubin runs on its own major, from its own minor up; PTX also runs on later majors. Code for `9.0a`, cubin or PTX,
    runs on 9.0 only; code for `10.0f` runs in its family, on 10.0 and later minors. Pass `jit=False` for a driver
    older than the CUDA that wrote the PTX: it refuses PTX.
    """
    gpu = nv(cc).minor
    if any(_runs(target, gpu, upwards=False) for target in targets):
        return "sass"
    if jit and any(_runs(target, gpu, upwards=True) for target in ptx):
        return "ptx"
    return None


def _runs(target: str, gpu: tuple[int, int], *, upwards: bool) -> bool:
    made_for, suffix = nv(target.rstrip("af")).minor, target[-1:]
    if suffix == "a":
        return made_for == gpu
    if suffix == "f" or not upwards:
        return made_for[0] == gpu[0] and made_for <= gpu
    return made_for <= gpu


def window_fits(driver: DriverValue, gpu: GpuKind) -> bool:
    """Return whether the driver's branch supports the GPU's architecture."""
    branch = driver.branch.branch
    return (gpu.min_branch is None or branch >= gpu.min_branch) and (
        gpu.last_branch is None or branch <= gpu.last_branch
    )


def module_fits(driver: DriverValue, gpu: GpuKind) -> bool:
    """Return whether this flavour of the kernel modules works with the GPU."""
    return driver.module == "open" if gpu.module == "required" else driver.module != "open" or gpu.module == "supported"


@lru_cache(maxsize=4096)
def compiles_for(matrix: Matrix, minor: str, cc: str) -> bool:
    """Return whether a toolkit's compiler supports a GPU's compute capability.

    Code for an older GPU of the same major would run too, but `-arch=native` and `-arch=sm_NN` would fail. A toolkit
    without measured targets is judged by its range; if that has no upper end, by the end of the next newer toolkit.
    """
    chains = sorted(matrix.cuda.toolchains, key=lambda item: nv(item.minor))
    toolchain = next((item for item in chains if item.minor == minor), None)
    if toolchain is None:
        return False
    if toolchain.targets:
        return cc in toolchain.targets
    newer = (item.cc_max for item in chains if nv(item.minor) >= nv(minor))
    most = next((end for end in newer if end is not None), None)
    return nv(toolchain.cc_min) <= nv(cc) and (most is None or nv(cc) <= nv(most))


def cudnn_row_covers(matrix: Matrix, row: CudnnSupport, cc: str) -> bool:
    """Return whether a row covers the GPU: up to its own end or its newest CUDA's, and later minors of that major."""
    gpu = nv(cc)
    if row.cc_min is not None and gpu < nv(row.cc_min):
        return False
    last = row.cc_max or _newest_target(matrix, max(row.cuda, key=nv))
    return last is None or gpu <= nv(last) or gpu.minor[0] == nv(last).minor[0]


@lru_cache(maxsize=64)
def _newest_target(matrix: Matrix, minor: str) -> str | None:
    """Return the newest compute capability of a CUDA, or of the next one that has it recorded."""
    return next((row.cc_max for row in matrix.cuda.toolchains if row.cc_max and nv(row.minor) >= nv(minor)), None)


def cudnn_row_takes(row: CudnnSupport, minor: str) -> bool:
    """Return whether a row allows a CUDA minor: listed, or newer in a major with minor-version compatibility."""
    if minor in row.cuda:
        return True
    wanted = major(minor)
    same = [listed for listed in row.cuda if major(listed) == wanted]
    return bool(same) and wanted >= FIRST_WITH_MINOR_COMPATIBILITY and nv(minor) > min(map(nv, same))


@lru_cache(maxsize=4096)
def _pin_agrees(first: str, second: str) -> bool:
    """Return whether one version can meet both requirements of a package, as far as an exact pin decides."""
    exact, other = sorted((first, second), key=lambda text: text[:1].isdigit(), reverse=True)
    if not exact[:1].isdigit():
        return True
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    try:
        return SpecifierSet(f"=={other}" if other[:1].isdigit() else other.rpartition("]")[2]).contains(Version(exact))
    except ValueError:  # one of them is not of PEP 440
        return True


def pins_agree(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Return whether two sets of requirements fit in one environment, as far as exact pins decide."""
    return all(_pin_agrees(first[name], second[name]) for name in first.keys() & second.keys())


def lower_bound(specifier: str) -> str | None:
    """Return the CUDA minor that a requirement like `>=12.1.105` or `12.4.127` starts at."""
    for part in specifier.rpartition("]")[2].split(","):
        text = part.strip()
        if text.startswith((">=", "==", "~=")) or text[:1].isdigit():
            return cuda_minor(text.lstrip("=<>~ "))
    return None


def newest(versions: Iterable[str]) -> str | None:
    """Return the newest of NVIDIA versions."""
    return max(versions, key=nv, default=None)
