"""Ubuntu's packages: names contain branch and `-server`; modules are prebuilt and signed for Ubuntu's kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from gpusetup.components.base import (
    PINNING,
    Context,
    DriverPackages,
    Family,
    archive_sources,
    driver_candidates,
    glob,
    named,
    no_names,
)
from gpusetup.components.desktops import graphics_of
from gpusetup.components.driver.built import Prebuilt, Ways, choose, only_trusted
from gpusetup.components.driver.fabric import fabric_globs, fabric_of, held
from gpusetup.components.driver.kernel import flavour_of, header_patterns, headers
from gpusetup.model.package import Package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.model.package import Built, Origins
    from gpusetup.model.repos import DistroDriver
    from gpusetup.model.request import DriverCandidate, ModuleFlavour
    from gpusetup.model.stack import DriverChoice

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


class UbuntuArchive(Family):
    """Ubuntu 20.04 to 26.04, component restricted; its CUDA toolkit is too old to use."""

    key = "ubuntu-archive"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> Origins:
        """Return entries for restricted, with the host's own mirror and key."""
        return archive_sources(context, (row.components for row in _rows(context)))

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
        row = _row_for(context, choice)
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


def _rows(context: Context) -> Iterator[DistroDriver]:
    return (row for row in context.repos.distro_drivers if context.facts.os.label in row.systems)


def _covers(row: DistroDriver, branch: str) -> bool:
    return row.max_branch is None or int(branch) <= row.max_branch


def _row_for(context: Context, choice: DriverChoice) -> DistroDriver:
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
