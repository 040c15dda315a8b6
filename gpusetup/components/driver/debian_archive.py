"""Debian's packages: one driver per suite, no branch in names, DKMS modules; older series are called `tesla-NNN`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from gpusetup.components.base import (
    PINNING,
    Context,
    DriverPackages,
    Family,
    archive_sources,
    candidates,
    driver_candidates,
    no_names,
)
from gpusetup.components.desktops import graphics_of
from gpusetup.components.driver.fabric import held
from gpusetup.components.driver.kernel import header_patterns, headers, unknown_kernel_note
from gpusetup.components.judge import versions
from gpusetup.model.package import Libraries, Package

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.package import Origins
    from gpusetup.model.repos import DistroDriver, ReposFile
    from gpusetup.model.request import DriverCandidate, LibraryCandidates, ModuleFlavour
    from gpusetup.model.stack import DriverChoice, Stack

_TOOLKIT = "nvidia-cuda-toolkit"
_TOOLKIT_GCC = "nvidia-cuda-toolkit-gcc"
"""Makes nvcc use a compiler that this toolkit supports; the suite's default is newer."""
_RELEASE = re.compile(r"~(\d+\.\d+\.\d+)-")
"""11.8.89~11.8.0-5~deb12u1: the compiler's number, then the release."""
_NCCL = "libnccl2"


class DebianArchive(Family):
    """Debian 11 to 13 with contrib and non-free; kernel modules only as source."""

    key = "debian-archive"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> Origins:
        """Return entries for contrib and non-free, with the host's own mirror and key."""
        return archive_sources(context, (row.components for row in _rows(context)))

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return the names of kernel modules, user space, libraries and headers."""
        names = [
            name for row in _rows(context) for name in (*row.modules, *row.packages, *row.optional, row.persistence)
        ]
        return tuple(dict.fromkeys((*names, _NCCL, _TOOLKIT, _TOOLKIT_GCC, *header_patterns(context))))

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the offered drivers; a flavour counts only if its module has the version of the user space."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        if context.settings.module == "prebuilt":
            return ()
        for row in _rows(context):
            for version in context.offers.upstreams(row.packages[0]):
                if context.offers.has(row.modules[0], version):
                    found.setdefault(version, set()).add(row.module)
        return driver_candidates(found)

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return kernel module, CUDA library, nvidia-smi and GSP firmware, all in one version."""
        offers, version = context.offers, choice.version
        row = _row_for(context, choice)
        packages = [offers.exact(name, version) for name in (*row.modules, *row.packages)]
        packages += [offers.exact(name, version) for name in row.optional if offers.has(name, version)]
        # Its patch number differs from the driver's, but the branch must match.
        daemon = offers.matching(row.persistence, f"{choice.branch}.*")
        persistence = context.settings.persistence and daemon is not None
        if persistence:
            packages.append(Package(name=row.persistence))
        packages += graphics_of(context, row.series, version)
        stack = held(context.repos, "distro", "debian")
        return DriverPackages(
            packages=tuple(packages),
            prerequisites=headers(context),
            remove=_gone(_rows(context), row),
            may_remove=stack,
            hold=stack,
            notes=(*_flavour_note(context, row, choice), *unknown_kernel_note(context)),
            persistence=persistence,
        )

    def series(self, context: Context, choice: DriverChoice) -> str:
        """Return the suffix of the series that offers this version; "" for the suite's own driver."""
        rows = (row for row in _rows(context) if context.offers.has(row.packages[0], choice.version))
        return next((row.series for row in rows), "")

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:
        """Return Debian's toolkit and NCCL, if packages are asked for."""
        if context.settings.cuda_from != "packages" or not context.offers.known:
            return ()
        cuda = [match.group(1) for match in map(_RELEASE.search, context.offers.versions(_TOOLKIT)) if match]
        majors = dict.fromkeys(version.partition(".")[0] for version in cuda)
        return candidates(
            cuda=[(version, version.partition(".")[0]) for version in cuda],
            nccl=[(version, major) for version in context.offers.upstreams(_NCCL) for major in majors],
        )

    def libraries(self, context: Context, stack: Stack) -> Libraries:
        """Return Debian's toolkit and NCCL, if packages are asked for.

        cuDNN stays a wheel: Debian's package is a script that downloads an archive from NVIDIA.
        """
        if context.settings.cuda_from != "packages" or stack.cuda is None:
            return Libraries()
        compiler = (Package(name=_TOOLKIT_GCC),) if context.offers.has(_TOOLKIT_GCC) else ()
        toolkit = context.offers.matching(_TOOLKIT, f"*~{stack.cuda.version}-*") or Package(name=_TOOLKIT)
        offered = stack.nccl is not None and context.offers.has(_NCCL, stack.nccl.version)
        nccl = (context.offers.exact(_NCCL, stack.nccl.version),) if stack.nccl is not None and offered else ()
        return Libraries(cuda=(toolkit, *compiler), nccl=nccl)


def last_seen(repos: ReposFile, label: str) -> tuple[DriverCandidate, ...] | None:
    """Return the drivers that the matrix last saw in a suite, for unknown offers; None for other systems."""
    rows = [row for row in repos.distro_drivers if label in row.systems and row.version]
    # An open module that is older than its driver fits nothing.
    whole = {(row.series, versions.upstream(row.version)) for row in rows if row.module == "proprietary"}
    found: dict[str, set[ModuleFlavour]] = {}
    for row in rows:
        version = versions.upstream(row.version)
        if (row.series, version) in whole:
            found.setdefault(version, set()).add(row.module)
    return driver_candidates(found) if rows else None


def _rows(context: Context) -> list[DistroDriver]:
    return [row for row in context.repos.distro_drivers if context.facts.os.label in row.systems]


def _row_for(context: Context, choice: DriverChoice) -> DistroDriver:
    """Return the series that offers this driver and flavour, else the one last seen with it; raise if there is none."""
    rows = [row for row in _rows(context) if row.module == choice.module]
    offered = [row for row in rows if context.offers.has(row.packages[0], choice.version)]
    seen = [row for row in rows if versions.upstream(row.version) == choice.version]
    if not offered and not seen:
        raise no_names(context, choice, "Debian's archive")
    return (offered or seen)[0]


def _gone(rows: Iterable[DistroDriver], row: DistroDriver) -> tuple[str, ...]:
    """Return what must be removed: the other flavour's module, and the root packages of other series.

    Two series may be installed side by side, but then the newer libraries are used, whatever module is loaded.
    """
    names = [
        name
        for other in rows
        for name in (*other.modules, *((*other.packages, *other.roots) if other.series != row.series else ()))
        if name not in row.modules
    ]
    return (*dict.fromkeys(names), PINNING)


def _flavour_note(context: Context, row: DistroDriver, choice: DriverChoice) -> tuple[str, ...]:
    """Return a note if the offered open module is unusable because its version differs."""
    rows = [other for other in _rows(context) if other.module == "open" and other.series == row.series]
    offered = [version for other in rows for version in context.offers.upstreams(other.modules[0])]
    if choice.module == "open" or not offered or choice.version in offered:
        return ()
    text = f"the open kernel module here is {offered[0]}, the rest of the driver {choice.version}: "
    return (text + "they must match, so the proprietary module is used",)
