"""Drivers of the distributions' own archives: Ubuntu's and Debian's.

Ubuntu's names contain branch and `-server`; modules are prebuilt and signed for Ubuntu's kernels. Debian has one driver
per suite, no branch in names, DKMS modules; older series are called `tesla-NNN`.
"""

import re
from collections.abc import Iterable
from itertools import chain
from typing import Literal

from gpusetup.components.base import (
    PINNING,
    Context,
    DriverPackages,
    Family,
    candidates,
    driver_candidates,
    glob,
    named,
    no_names,
)
from gpusetup.components.desktops import graphics_of
from gpusetup.components.driver.modules import (
    Prebuilt,
    Ways,
    choose,
    flavour_of,
    header_patterns,
    headers,
    only_trusted,
    unknown_kernel_note,
)
from gpusetup.components.fabric import fabric_globs, fabric_of, held
from gpusetup.components.judge import versions
from gpusetup.model.package import Built, Libraries, Origins, Package, Source
from gpusetup.model.repos import DistroDriver, ReposFile
from gpusetup.model.request import DriverCandidate, LibraryCandidates, ModuleFlavour
from gpusetup.model.stack import DriverChoice, Stack

_GRAPHICS = (
    "libnvidia-gl", "libnvidia-decode", "libnvidia-encode", "libnvidia-extra", "libnvidia-fbc1",
    "xserver-xorg-video-nvidia",
)  # fmt: skip
"""Further packages of a desktop: those that are installed move to the new series."""
_STEMS = (
    *_GRAPHICS, "libnvidia-compute", "libnvidia-cfg1", "nvidia-utils", "nvidia-compute-utils", "nvidia-kernel-common",
    "nvidia-kernel-source", "nvidia-dkms", "nvidia-headless-no-dkms", "nvidia-headless", "nvidia-driver",
)  # fmt: skip
_SERIES = r"(-\d{3}(?:-server)?)"
_PREBUILT = rf"linux-(?:modules|objects|signatures)-nvidia{_SERIES}(?:-open)?-[\w.+-]+"
"""The kernel release follows the flavour."""
_NAME = re.compile(rf"(?:({'|'.join(_STEMS)}){_SERIES}?(?:-open)?|{_PREBUILT})")


def of_other_series(context: Context, series: str) -> tuple[str, ...]:
    """Return the names of installed packages of other series than this suffix.

    Ubuntu's archive and NVIDIA's repository declare different conflicts, so apt alone finds no way between them.
    """
    found = ((name, _NAME.fullmatch(name)) for name in context.facts.packages.installed)
    return tuple(sorted(name for name, match in found if match and (match.group(2) or match.group(3) or "") != series))


def graphics_patterns(context: Context) -> tuple[str, ...]:
    """Return globs for the desktop packages that are installed."""
    return tuple(f"{stem}*" for stem in _installed_graphics(context))


def graphics(context: Context, series: str, version: str) -> tuple[Package, ...]:
    """Return the installed desktop packages, in this series and version."""
    names = (f"{stem}{series}" for stem in _installed_graphics(context))
    return tuple(context.offers.exact(name, version) for name in names if context.offers.has(name, version))


def _installed_graphics(context: Context) -> tuple[str, ...]:
    matches = (_NAME.fullmatch(name) for name in context.facts.packages.installed)
    found = {match.group(1) for match in matches if match}
    return tuple(stem for stem in _GRAPHICS if stem in found)


class _Archive(Family):
    """A distribution's own archive, some of whose components hold the driver."""

    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> Origins:
        """Return entries that enable missing components of the suites, with the host's own mirror and key."""
        codename = context.facts.os.codename or ""
        components = dict.fromkeys(chain.from_iterable(row.components for row in _rows(context)))
        entries = []
        for suite in (codename, f"{codename}-updates", f"{codename}-security", f"{codename}-backports"):
            ours = f"/gpusetup-{suite}.sources"  # entries of an earlier apply do not count: they are still wanted
            sources = [source for source in context.facts.packages.sources if not source.file.endswith(ours)]
            own = [source for source in sources if suite in source.suites]
            lacking = [item for item in components if not any(item in source.components for source in own)]
            if own and lacking:
                name, parts = f"gpusetup-{suite}", tuple(lacking)
                entries.append(
                    Source(name=name, kind="apt", like_suite=suite, suites=(suite,), components=parts, architectures=())
                )
        return Origins(sources=tuple(entries))


class UbuntuArchive(_Archive):
    """Ubuntu 20.04 to 26.04, component restricted; its CUDA toolkit is too old to use."""

    key = "ubuntu-archive"

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return globs for server branches, fabric, headers and installed desktop packages."""
        names = [
            name for row in _rows(context) for name in (*row.modules, row.next_kernel, *row.packages, row.persistence)
        ]
        fabric = [
            name for row in context.repos.fabric if row.format == "deb" for name in (row.fabric_manager, row.nscq)
        ]
        return tuple(
            dict.fromkeys(
                (*map(glob, names), *map(glob, fabric), *header_patterns(context), *graphics_patterns(context))
            )
        )

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the drivers with modules for the kernel that boots next, prebuilt or as source."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        signed: dict[str, set[ModuleFlavour]] = {}
        for row in _rows(context):
            for name in context.offers.names(glob(row.packages[0], "[0-9]*")):
                match = re.fullmatch(re.escape(row.packages[0]).replace(r"\{branch\}", r"(\d+)"), name)
                chosen = choose(context, _ways(context, row, match[1])) if match else None
                if match is None or chosen is None or not _covers(row, match[1]):
                    continue
                for version in context.offers.upstreams(name)[:1]:
                    found.setdefault(version, set()).add(row.module)
                    if chosen[0] == "prebuilt":
                        signed.setdefault(version, set()).add(row.module)
        return driver_candidates(signed if signed and only_trusted(context) else found)

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return signed modules for this and later kernels (or DKMS source), user space and nvidia-smi."""
        offers, branch = context.offers, choice.branch
        row = _ubuntu_row(context, choice)
        built, why = _built(context, row, branch)
        ways = _ways(context, row, branch)
        signed, source = _names(context, row, branch)
        follower = ways.prebuilt.follower if built == "prebuilt" and ways.prebuilt is not None else ""
        modules = [Package(name=signed)] if built == "prebuilt" else [offers.exact(source, choice.version)]
        if follower:
            modules.append(Package(name=follower))
        names = [*row.packages, *((row.persistence,) if context.settings.persistence else ())]
        fabric = fabric_of(context, choice, "deb", manager_only=True)
        series = self.series(context, choice)
        stack = held(context.repos, "distro", "ubuntu")
        return DriverPackages(
            packages=(
                *modules,
                *(offers.exact(named(name, branch=branch), choice.version) for name in names),
                *graphics(context, series, choice.version),
                *graphics_of(context, series, choice.version, graphics(context, series, choice.version)),
            ),
            prerequisites=() if built == "prebuilt" else headers(context),
            fabric=fabric,
            remove=(
                *_other_flavour(series[1:], "-open" if choice.module == "open" else ""),
                *((source,) if built == "prebuilt" else (f"linux-modules-nvidia-{series[1:]}*",)),
                *of_other_series(context, series), PINNING, *fabric_globs(context, "deb"),
            ),
            may_remove=stack,
            hold=stack,
            built=built,
            why=why,
            keeps_kernel=built == "prebuilt" and offers.known and not follower,
        )  # fmt: skip

    def series(self, context: Context, choice: DriverChoice) -> str:  # noqa: ARG002 - one interface for all
        """Return the suffix of a server branch."""
        return f"-{choice.branch}-server"

    def has_prebuilt(self, context: Context) -> bool:
        """Return True for all systems in the matrix: Canonical builds modules for every kernel of its archive."""
        return any(True for _row in _rows(context))


def _rows(context: Context) -> list[DistroDriver]:
    return [row for row in context.repos.distro_drivers if context.facts.os.label in row.systems]


def _covers(row: DistroDriver, branch: str) -> bool:
    return row.max_branch is None or int(branch) <= row.max_branch


def _ubuntu_row(context: Context, choice: DriverChoice) -> DistroDriver:
    rows = [row for row in _rows(context) if row.module == choice.module and _covers(row, choice.branch)]
    if not rows:
        raise no_names(context, choice, "Ubuntu's archive")
    return rows[0]


def _names(context: Context, row: DistroDriver, branch: str) -> tuple[str, str]:
    """Return the names of the prebuilt modules for the kernel that boots next, and of the source for DKMS."""
    signed, source = (named(name, branch=branch, kernel=context.facts.kernel.next) for name in row.modules)
    return signed, source


def _ways(context: Context, row: DistroDriver, branch: str) -> Ways:
    signed, source = _names(context, row, branch)
    prebuilt = None
    if context.offers.has(signed):
        prebuilt = Prebuilt(
            package=Package(name=signed), follower=_follower(context, row, branch), signer=row.signer, trusted=True
        )
    return Ways(prebuilt=prebuilt, dkms=context.offers.has(source), prefers="prebuilt")


def _built(context: Context, row: DistroDriver, branch: str) -> tuple[Built, str]:
    """Return how the modules are built, and why; while offers are unknown, both ways count as offered."""
    chosen = choose(context, _ways(context, row, branch))
    if chosen is not None:
        return chosen
    asked = context.settings.module
    return ("dkms", "set by gpusetup_module") if asked == "dkms" else ("prebuilt", "the archive has them")


def _follower(context: Context, row: DistroDriver, branch: str) -> str:
    """Return the metapackage that brings modules for later kernels of this host's line; "" if not offered.

    The metapackage of another line (`generic` with an HWE kernel) would install that line's kernel.
    """
    release = context.facts.kernel.next
    line = release[: release.find(".", release.find(".") + 1) + 1]
    name = named(row.next_kernel, branch=branch, flavour=flavour_of(context))
    return name if any(version.startswith(line) for version in context.offers.versions(name)) else ""


def _other_flavour(series: str, suffix: str) -> tuple[str, ...]:
    """Return globs for packages of the other flavour of this series, which the same transaction removes."""
    stems = ("nvidia-dkms", "nvidia-headless-no-dkms", "linux-modules-nvidia")
    if suffix:
        return (*(f"{stem}-{series}" for stem in stems[:2]), f"linux-modules-nvidia-{series}-[!o]*")
    return tuple(f"{stem}-{series}-open*" for stem in stems)


_TOOLKIT = "nvidia-cuda-toolkit"
_TOOLKIT_GCC = "nvidia-cuda-toolkit-gcc"
"""Makes nvcc use a compiler that this toolkit supports; the suite's default is newer."""
_RELEASE = re.compile(r"~(\d+\.\d+\.\d+)-")
"""11.8.89~11.8.0-5~deb12u1: the compiler's number, then the release."""
_NCCL = "libnccl2"


class DebianArchive(_Archive):
    """Debian 11 to 13 with contrib and non-free; kernel modules only as source."""

    key = "debian-archive"

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
        row = _debian_row(context, choice)
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


def _debian_row(context: Context, choice: DriverChoice) -> DistroDriver:
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
