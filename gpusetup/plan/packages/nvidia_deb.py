"""NVIDIA's repositories for Ubuntu and Debian.

Ubuntu: the branch is in the names up to 580; from 590 a pinning package chooses the version (guides 590 and later).
Debian: Debian's own names underneath (`nvidia-kernel-open-dkms`, `nvidia-driver-cuda`), never the branch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.model.plan import Package
from gpusetup.model.request import DriverCandidate, ModuleFlavour
from gpusetup.plan.offers import newest_first
from gpusetup.plan.packages.base import PINNING, Context, DriverPackages
from gpusetup.plan.packages.nvidia import fabric_names, library_candidates, library_packages, nvidia_sources
from gpusetup.plan.packages.ubuntu_series import graphics, graphics_patterns, of_other_series

if TYPE_CHECKING:
    from gpusetup.model.request import LibraryCandidates
    from gpusetup.model.stack import DriverChoice, Stack

__all__ = ["NvidiaDebian", "NvidiaUbuntu"]

_HELD = (
    "nvidia-*", "libnvidia-*", "libcuda1", "libnvsdm*", "cuda-drivers*", "xserver-xorg-video-nvidia*",
    "firmware-nvidia-*",
)  # fmt: skip
_COMMON = (
    "cuda-toolkit-*", "libcudnn*-cuda-*", "libcudnn8", "libnccl2", "libnccl-dev", "nvidia-fabricmanager*",
    "libnvidia-nscq*",
)  # fmt: skip


class NvidiaUbuntu:
    """compute/cuda/repos/ubuntuNNNN."""

    key = "nvidia-ubuntu"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> dict[str, Any]:
        """NVIDIA's flat repository, or the mirror of it."""
        return nvidia_sources(context, "apt")

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Kernel modules by name family, user space, and the libraries."""
        return (
            "nvidia-dkms-*", "nvidia-headless-no-dkms-*", "nvidia-utils*", "nvidia-compute-utils*",
            "libnvidia-compute*",
            "nvidia-driver-pinning-*", "nvidia-open*", "cuda-drivers*", *graphics_patterns(context),
            f"linux-headers-{context.facts.kernel.next}", *_COMMON,
        )  # fmt: skip

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Every version of every module package."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        for name in context.offers.names("nvidia-dkms*"):
            match = re.fullmatch(r"nvidia-dkms(-\d+)?(-open)?", name)
            for version in context.offers.upstreams(name) if match else []:
                found.setdefault(version, set()).add("open" if match and match.group(2) else "proprietary")
        return tuple(
            DriverCandidate(version=version, modules=tuple(sorted(found[version]))) for version in newest_first(found)
        )

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Compute packages without a desktop; the metapackage where nobody could look what is offered."""
        offers, branch, version = context.offers, int(choice.branch), choice.version
        named = branch < context.names.driver_plain_from
        suffix = f"-{branch}" if named else ""
        flavour = "-open" if choice.module == "open" else ""
        dkms = f"nvidia-dkms{suffix}{flavour}"
        names = [
            dkms,
            f"nvidia-headless-no-dkms{suffix}{flavour}",
            f"libnvidia-compute{suffix}",
            f"nvidia-utils{suffix}",
        ]
        if context.settings.persistence:
            names.append(f"nvidia-compute-utils{suffix}")
        if offers.known:
            names = [name for name in names if name == dkms or offers.has(name, version)]
        else:
            names = [f"nvidia-open{suffix}" if choice.module == "open" else f"cuda-drivers{suffix}"]
        packages = [*(offers.exact(name, version) for name in names), *graphics(context, suffix, version)]
        if not named:
            packages.insert(0, _pinning(context, choice))
        other = "" if flavour else "-open"
        stems = ("nvidia-dkms", "nvidia-driver", "nvidia-headless", "nvidia-headless-no-dkms")
        remove = [*(f"{stem}{suffix}{other}" for stem in stems), *of_other_series(context, suffix), PINNING]
        remove.append(f"nvidia-open{suffix}" if other else f"cuda-drivers{suffix}")
        return DriverPackages(
            packages=tuple(packages),
            prerequisites=(Package(name=f"linux-headers-{context.facts.kernel.next}"),),
            fabric=fabric_names(context, choice, "apt"),
            remove=tuple(remove),
            may_remove=_HELD,
            hold=_HELD,
        )

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:
        """What this repository has of them."""
        return library_candidates(context, "apt")

    def libraries(self, context: Context, stack: Stack) -> dict[str, Any]:
        """Toolkit, cuDNN and NCCL as system packages."""
        return library_packages(context, stack, "apt")


class NvidiaDebian:
    """compute/cuda/repos/debianNN."""

    key = "nvidia-debian"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> dict[str, Any]:
        """NVIDIA's flat repository, or the mirror of it."""
        return nvidia_sources(context, "apt")

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Kernel modules, user space, and the libraries."""
        return (
            "nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-driver-pinning-*",
            "nvidia-smi",
            "libcuda1", "nvidia-persistenced", "nvidia-open*", "cuda-drivers*",
            f"linux-headers-{context.facts.kernel.next}", *_COMMON,
        )  # fmt: skip

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """A version counts where NVIDIA's own user space stands beside the module: names are shared with Debian's."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        for version in context.offers.upstreams("nvidia-driver-cuda"):
            for flavour, name in _DEBIAN_MODULES.items():
                if context.offers.has(name, version):
                    found.setdefault(version, set()).add(flavour)
        return tuple(
            DriverCandidate(version=version, modules=tuple(sorted(found[version]))) for version in newest_first(found)
        )

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """The compute set: module and nvidia-driver-cuda."""
        names = [_DEBIAN_MODULES[choice.module], "nvidia-driver-cuda"]
        packages = [context.offers.exact(name, choice.version) for name in names]
        if int(choice.branch) >= context.names.driver_plain_from:
            packages.insert(0, _pinning(context, choice))
        other: ModuleFlavour = "proprietary" if choice.module == "open" else "open"
        return DriverPackages(
            packages=tuple(packages),
            prerequisites=(Package(name=f"linux-headers-{context.facts.kernel.next}"),),
            fabric=fabric_names(context, choice, "apt"),
            remove=(_DEBIAN_MODULES[other], "nvidia-open-kernel-dkms", PINNING),
            may_remove=_HELD,
            hold=_HELD,
        )

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:
        """What this repository has of them."""
        return library_candidates(context, "apt")

    def libraries(self, context: Context, stack: Stack) -> dict[str, Any]:
        """Toolkit, cuDNN and NCCL as system packages."""
        return library_packages(context, stack, "apt")


_DEBIAN_MODULES: dict[ModuleFlavour, str] = {
    "open": "nvidia-kernel-open-dkms",
    "proprietary": "nvidia-kernel-dkms",
}


def _pinning(context: Context, choice: DriverChoice) -> Package:
    """Return the package that chooses the version: of this very version where there is one, else of its branch."""
    exact = f"nvidia-driver-pinning-{choice.version}"
    if context.offers.has(exact) or not context.offers.known:
        return Package(name=exact)
    return Package(name=f"nvidia-driver-pinning-{choice.branch}")
