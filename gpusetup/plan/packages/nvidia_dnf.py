"""NVIDIA's repositories for dnf: module streams on EL 8 and 9 and Amazon Linux 2023, plain packages from EL 10 on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from gpusetup.model.plan import Package
from gpusetup.model.request import DriverCandidate, ModuleFlavour
from gpusetup.plan.offers import newest_first
from gpusetup.plan.packages.base import Context, DriverPackages
from gpusetup.plan.packages.nvidia import fabric_names, library_candidates, library_packages, nvidia_sources

if TYPE_CHECKING:
    from gpusetup.model.request import LibraryCandidates
    from gpusetup.model.stack import DriverChoice, Stack

__all__ = ["NvidiaDnf"]

_HELD = ("nvidia-*", "libnvidia-*", "kmod-nvidia-*", "cuda-drivers*", "libnvsdm*")
_MODULES: dict[ModuleFlavour, str] = {"open": "kmod-nvidia-open-dkms", "proprietary": "kmod-nvidia-latest-dkms"}


class NvidiaDnf:
    """compute/cuda/repos/rhelN, amzn2023, fedoraNN."""

    manager: Literal["dnf"] = "dnf"

    def __init__(self, *, modular: bool) -> None:
        self.modular = modular
        self.key = "nvidia-dnf-modular" if modular else "nvidia-dnf"

    def sources(self, context: Context) -> dict[str, Any]:
        """NVIDIA's repository, and the distribution's own that dkms needs."""
        fields = nvidia_sources(context, "dnf")
        system = context.facts.os
        if system.id in {"rocky", "almalinux", "centos", "ol"}:
            name = {"8": "powertools", "9": "crb", "10": "crb"}.get(system.version_id.partition(".")[0])
            configured = {source.uri for source in context.facts.packages.sources}
            if name and any(name in uri.lower() for uri in configured):
                fields["enable"] = (name,)
        return fields

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Kernel modules, user space, and the libraries."""
        return (
            *_MODULES.values(), "nvidia-open*", "cuda-drivers*", "nvidia-driver-cuda", "nvidia-persistenced",
            "nvidia-fabric*manager*", "libnvidia-nscq*", "cuda-toolkit-*", "libcudnn*-cuda-*", "libcudnn8", "libnccl",
            f"kernel-devel-{context.facts.kernel.next}", "dkms",
        )  # fmt: skip

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Every version of every module package; streams hide other branches until one is chosen."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        for flavour, name in _MODULES.items():
            for version in context.offers.upstreams(name):
                found.setdefault(version, set()).add(flavour)
        return (
            tuple(
                DriverCandidate(version=version, modules=tuple(sorted(found[version])))
                for version in newest_first(found)
            )
            or None
        )

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Module and compute user space; where names allow it the stream chooses the branch."""
        other: ModuleFlavour = "proprietary" if choice.module == "open" else "open"
        names = [_MODULES[choice.module], "nvidia-driver-cuda"]
        if context.settings.persistence:
            names.append("nvidia-persistenced")
        if not self.modular and not context.offers.known:
            names = ["nvidia-open" if choice.module == "open" else "cuda-drivers"]
        stream = f"{choice.branch}-open" if choice.module == "open" else f"{choice.branch}-dkms"
        return DriverPackages(
            packages=tuple(context.offers.exact(name, choice.version) for name in names),
            prerequisites=kernel_packages(context),
            fabric=fabric_names(context, choice, "dnf"),
            streams=({"module": "nvidia-driver", "stream": stream},) if self.modular else (),
            remove=(_MODULES[other],),
            may_remove=_HELD,
            hold=_HELD,
        )

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:
        """What this repository has of them."""
        return library_candidates(context, "dnf")

    def libraries(self, context: Context, stack: Stack) -> dict[str, Any]:
        """Toolkit, cuDNN and NCCL as system packages."""
        return library_packages(context, stack, "dnf")


def kernel_packages(context: Context) -> tuple[Package, ...]:
    """Headers of the kernel that boots next; Amazon names them by kernel line."""
    release = context.facts.kernel.next
    version = release.removesuffix(f".{context.facts.arch}")
    if context.facts.os.id == "amzn":
        line = ".".join(release.split(".")[:2])
        name = "kernel-devel" if line == "6.1" else f"kernel{line}-devel"
        return (Package(name=name, version=version),)
    return (Package(name="kernel-devel", version=version),)
