"""Ubuntu's own packages: branch and `-server` in the names, modules prebuilt and signed for Ubuntu's kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.model.plan import Package
from gpusetup.model.request import DriverCandidate, ModuleFlavour
from gpusetup.plan.offers import newest_first
from gpusetup.plan.packages.base import PINNING, Context, DriverPackages, archive_sources
from gpusetup.plan.packages.ubuntu_series import graphics, graphics_patterns, of_other_series

if TYPE_CHECKING:
    from gpusetup.model.request import LibraryCandidates
    from gpusetup.model.stack import DriverChoice, Stack

__all__ = ["UbuntuArchive"]

_USER_SPACE = re.compile(r"nvidia-headless-no-dkms-(\d+-server)(-open)?")
_HELD = ("nvidia-*", "libnvidia-*", "linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")


class UbuntuArchive:
    """Ubuntu 20.04 to 26.04, restricted."""

    key = "ubuntu-archive"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> dict[str, Any]:
        """Restricted, from the mirror and with the key that the host uses already."""
        return {"sources": archive_sources(context, context.facts.os.codename or "", ["restricted"])}

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Server branches; desktop ones are left to desktops."""
        kernel = context.facts.kernel.next
        return (
            "nvidia-headless-no-dkms-*-server*", "nvidia-utils-*-server", "nvidia-compute-utils-*-server",
            "nvidia-dkms-*-server*", f"linux-modules-nvidia-*-server*-{kernel}", "linux-modules-nvidia-*-server*",
            "nvidia-fabricmanager*", "libnvidia-nscq*", f"linux-headers-{kernel}", *graphics_patterns(context),
        )  # fmt: skip

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """A flavour counts where modules for the kernel that boots next exist, prebuilt or as source."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        for name in context.offers.names("nvidia-headless-no-dkms-*-server*"):
            match = _USER_SPACE.fullmatch(name)
            if match is None or _module(context, match.group(1), match.group(2) or "") is None:
                continue
            flavour: ModuleFlavour = "open" if match.group(2) else "proprietary"
            for version in context.offers.upstreams(name)[:1]:
                found.setdefault(version, set()).add(flavour)
        return tuple(
            DriverCandidate(version=version, modules=tuple(sorted(found[version]))) for version in newest_first(found)
        )

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Signed modules for the kernel and for those that follow it, user space without DKMS, nvidia-smi."""
        offers, series = context.offers, f"{choice.branch}-server"
        suffix = "-open" if choice.module == "open" else ""
        module = (
            _module(context, series, suffix) or f"linux-modules-nvidia-{series}{suffix}-{context.facts.kernel.next}"
        )
        prebuilt = module.startswith("linux-modules-")
        modules = [Package(name=module)]
        follower = f"linux-modules-nvidia-{series}{suffix}-{context.facts.kernel.next.rpartition('-')[2]}"
        if prebuilt and offers.has(follower):
            modules.append(Package(name=follower))
        if not prebuilt:
            modules = [offers.exact(module, choice.version)]
        names = [f"nvidia-headless-no-dkms-{series}{suffix}", f"nvidia-utils-{series}"]
        if context.settings.persistence:
            names.append(f"nvidia-compute-utils-{series}")
        fabric: tuple[Package, ...] = ()
        if context.facts.nvswitch is not None:
            branch = int(choice.branch)
            plain = branch >= context.names.fabric_plain_from and offers.has("nvidia-fabricmanager", choice.version)
            stem = "nvidia-fabricmanager" if plain else ""
            fabric = (offers.exact(stem or f"nvidia-fabricmanager-{choice.branch}", choice.version),)
        return DriverPackages(
            packages=(
                *modules,
                *(offers.exact(name, choice.version) for name in names),
                *graphics(context, f"-{series}", choice.version),
            ),
            prerequisites=() if prebuilt else (Package(name=f"linux-headers-{context.facts.kernel.next}"),),
            fabric=fabric,
            remove=(*_other_flavour(series, suffix), *of_other_series(context, f"-{series}"), PINNING),
            may_remove=_HELD,
            hold=_HELD,
            prebuilt=prebuilt,
        )

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:  # noqa: ARG002 - one interface for all
        """None of them comes from here."""
        return ()

    def libraries(self, context: Context, stack: Stack) -> dict[str, Any]:  # noqa: ARG002 - one interface for all
        """The archive's toolkit is years old: libraries come as wheels."""
        return {}


def _module(context: Context, series: str, suffix: str) -> str | None:
    """Return the package of prebuilt modules for the kernel that boots next, else the source for DKMS."""
    kernel = context.facts.kernel.next
    for name in (f"linux-modules-nvidia-{series}{suffix}-{kernel}", f"nvidia-dkms-{series}{suffix}"):
        if context.offers.has(name):
            return name
    return None


def _other_flavour(series: str, suffix: str) -> tuple[str, ...]:
    """Return globs of what belongs to the other flavour of this series alone: it goes in the same transaction."""
    stems = ("nvidia-dkms", "nvidia-headless-no-dkms", "linux-modules-nvidia")
    if suffix:
        return (*(f"{stem}-{series}" for stem in stems[:2]), f"linux-modules-nvidia-{series}-[!o]*")
    return tuple(f"{stem}-{series}-open*" for stem in stems)
