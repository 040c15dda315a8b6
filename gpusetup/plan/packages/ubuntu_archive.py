"""Ubuntu's own packages: branch and `-server` in the names, modules prebuilt and signed for Ubuntu's kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from gpusetup.model.package import Libraries, Package
from gpusetup.plan.packages.base import (
    PINNING,
    Context,
    DriverPackages,
    archive_sources,
    driver_candidates,
    no_names,
)
from gpusetup.plan.packages.kernel import flavour_of, header_patterns, headers
from gpusetup.plan.packages.names import fabric_globs, fabric_of, glob, held, named
from gpusetup.plan.packages.ubuntu_series import graphics, graphics_patterns, of_other_series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.model.package import Origins
    from gpusetup.model.repos import DistroDriver
    from gpusetup.model.request import DriverCandidate, LibraryCandidates, ModuleFlavour
    from gpusetup.model.stack import DriverChoice, Stack

__all__ = ["UbuntuArchive"]


class UbuntuArchive:
    """Ubuntu 20.04 to 26.04, restricted."""

    key = "ubuntu-archive"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> Origins:
        """Restricted, from the mirror and with the key that the host uses already."""
        components = dict.fromkeys(item for row in _rows(context) for item in row.components)
        return archive_sources(context, context.facts.os.codename or "", components)

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Server branches; desktop ones are left to desktops."""
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
        """A flavour counts where modules for the kernel that boots next exist, prebuilt or as source."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        for row in _rows(context):
            for name in context.offers.names(glob(row.packages[0], "[0-9]*")):
                match = re.fullmatch(re.escape(row.packages[0]).replace(r"\{branch\}", r"(\d+)"), name)
                if match is None or _module(context, row, match[1]) is None or not _covers(row, match[1]):
                    continue
                for version in context.offers.upstreams(name)[:1]:
                    found.setdefault(version, set()).add(row.module)
        return driver_candidates(found)

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Signed modules for the kernel and for those that follow it, user space without DKMS, nvidia-smi."""
        offers, branch = context.offers, choice.branch
        row = _row_for(context, choice)
        module = _module(context, row, branch) or named(row.modules[0], branch=branch, kernel=context.facts.kernel.next)
        prebuilt = _is_prebuilt(module)
        modules = [Package(name=module)] if prebuilt else [offers.exact(module, choice.version)]
        follower = _follower(context, row, branch) if prebuilt else ""
        if follower:
            modules.append(Package(name=follower))
        names = [*row.packages, *((row.persistence,) if context.settings.persistence else ())]
        fabric = fabric_of(context, choice, "deb", manager_only=True)
        series = f"-{branch}-server"
        stack = held(context.repos, "distro", "ubuntu")
        return DriverPackages(
            packages=(
                *modules,
                *(offers.exact(named(name, branch=branch), choice.version) for name in names),
                *graphics(context, series, choice.version),
            ),
            prerequisites=() if prebuilt else headers(context),
            fabric=fabric,
            remove=(
                *_other_flavour(series[1:], "-open" if choice.module == "open" else ""),
                *of_other_series(context, series), PINNING, *fabric_globs(context, "deb"),
            ),
            may_remove=stack,
            hold=stack,
            prebuilt=prebuilt,
        )  # fmt: skip

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:  # noqa: ARG002 - one interface for all
        """None of them comes from here."""
        return ()

    def libraries(self, context: Context, stack: Stack) -> Libraries:  # noqa: ARG002 - one interface for all
        """The archive's toolkit is years old: libraries come as wheels."""
        return Libraries()


def _rows(context: Context) -> Iterator[DistroDriver]:
    return (row for row in context.repos.distro_drivers if context.facts.os.label in row.systems)


def _covers(row: DistroDriver, branch: str) -> bool:
    return row.max_branch is None or int(branch) <= row.max_branch


def _row_for(context: Context, choice: DriverChoice) -> DistroDriver:
    rows = [row for row in _rows(context) if row.module == choice.module and _covers(row, choice.branch)]
    if not rows:
        raise no_names(context, choice, "Ubuntu's archive")
    return rows[0]


def _is_prebuilt(name: str) -> bool:
    return name.startswith("linux-modules-")


def _module(context: Context, row: DistroDriver, branch: str) -> str | None:
    """Return the package of prebuilt modules for the kernel that boots next, else the source for DKMS."""
    names = (named(name, branch=branch, kernel=context.facts.kernel.next) for name in row.modules)
    return next((name for name in names if context.offers.has(name)), None)


def _follower(context: Context, row: DistroDriver, branch: str) -> str:
    """Return what brings the modules of the kernels after this one, on this host's own line of kernels.

    The metapackage of another line (`generic` beside an HWE kernel) would pull that line's kernel in.
    """
    release = context.facts.kernel.next
    line = release[: release.find(".", release.find(".") + 1) + 1]
    name = named(row.next_kernel, branch=branch, flavour=flavour_of(context))
    return name if any(version.startswith(line) for version in context.offers.versions(name)) else ""


def _other_flavour(series: str, suffix: str) -> tuple[str, ...]:
    """Return globs of what belongs to the other flavour of this series alone: it goes in the same transaction."""
    stems = ("nvidia-dkms", "nvidia-headless-no-dkms", "linux-modules-nvidia")
    if suffix:
        return (*(f"{stem}-{series}" for stem in stems[:2]), f"linux-modules-nvidia-{series}-[!o]*")
    return tuple(f"{stem}-{series}-open*" for stem in stems)
