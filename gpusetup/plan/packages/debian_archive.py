"""Debian's own packages: one driver per suite, no branch in the names, modules by DKMS, older series as `tesla-NNN`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.model.plan import Package
from gpusetup.model.request import DriverCandidate, ModuleFlavour
from gpusetup.plan.offers import newest_first
from gpusetup.plan.packages.base import PINNING, Context, DriverPackages, archive_sources, candidates, debian_arch

if TYPE_CHECKING:
    from gpusetup.model.request import LibraryCandidates
    from gpusetup.model.stack import DriverChoice, Stack
    from gpusetup.plan.offers import Offers

__all__ = ["DebianArchive"]

_SERIES = ("", "-tesla-535", "-tesla-470")
"""Series that the archive carries side by side: the suite's own, then the older ones."""

_TOOLKIT = "nvidia-cuda-toolkit"
_TOOLKIT_GCC = "nvidia-cuda-toolkit-gcc"
"""Lets nvcc use the compiler that this toolkit knows; the suite's own is newer."""
_RELEASE = re.compile(r"~(\d+\.\d+\.\d+)-")
"""11.8.89~11.8.0-5~deb12u1: the compiler's number, then the release."""
_NCCL = "libnccl2"

_HELD = (
    "nvidia-*",
    "libnvidia-*",
    "libcuda1",
    "libcudadebugger1",
    "firmware-nvidia-*",
    "libnv*",
    "xserver-xorg-video-nvidia*",
)


class DebianArchive:
    """Debian 11 to 13 with contrib and non-free."""

    key = "debian-archive"
    manager: Literal["apt"] = "apt"

    def sources(self, context: Context) -> dict[str, Any]:
        """Switch contrib and non-free on, from the mirror and with the key that the host uses already."""
        codename = context.facts.os.codename or ""
        components = ["contrib", "non-free"]
        if codename not in {"buster", "bullseye"}:
            components.append("non-free-firmware")
        return {"sources": archive_sources(context, codename, components)}

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Kernel modules, user space and headers."""
        return (
            "nvidia*-kernel-dkms", "nvidia-smi", "nvidia-tesla-*-smi", "nvidia-persistenced", "libcuda1",
            "libnvidia-tesla-*-cuda1", "libnvidia-ml1", "firmware-nvidia-gsp", _NCCL, _TOOLKIT, _TOOLKIT_GCC,
            f"linux-headers-{context.facts.kernel.next}", f"linux-headers-{debian_arch(context.facts.arch)}",
        )  # fmt: skip

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """A flavour counts only where its module is exactly as new as the user space."""
        if not context.offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        for series in _SERIES:
            for version in context.offers.upstreams(_libcuda(series)):
                for flavour, module in _modules(series).items():
                    if context.offers.has(module, version):
                        found.setdefault(version, set()).add(flavour)
        return tuple(
            DriverCandidate(version=version, modules=tuple(sorted(found[version]))) for version in newest_first(found)
        )

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Kernel module, CUDA library, nvidia-smi, GSP firmware; everything at one version."""
        offers = context.offers
        series = next(
            (name for name in _SERIES if offers.has(_libcuda(name), choice.version)),
            "",
        )
        modules = _modules(series)
        names = [modules[choice.module], _libcuda(series), f"nvidia{series}-smi" if series else "nvidia-smi"]
        packages = [offers.exact(name, choice.version) for name in names]
        if not series and offers.has("firmware-nvidia-gsp", choice.version):
            packages.append(offers.exact("firmware-nvidia-gsp", choice.version))
        # It has patch numbers of its own, but is of one branch: a suite's own does not go with an older series.
        if context.settings.persistence and offers.matching("nvidia-persistenced", f"{choice.branch}.*"):
            packages.append(Package(name="nvidia-persistenced"))
        other: ModuleFlavour = "proprietary" if choice.module == "open" else "open"
        remove = [modules[other], *(package for name in _SERIES if name != series for package in _roots(name)), PINNING]
        return DriverPackages(
            packages=tuple(packages),
            prerequisites=kernel_headers(context),
            remove=tuple(remove),
            may_remove=_HELD,
            hold=_HELD,
            notes=_flavour_note(offers, modules, choice),
            persistence=any(package.name == "nvidia-persistenced" for package in packages),
        )

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:
        """Debian's toolkit and NCCL, when they are asked for as packages."""
        if context.settings.cuda_from != "packages" or not context.offers.known:
            return ()
        cuda = [match.group(1) for match in map(_RELEASE.search, context.offers.versions(_TOOLKIT)) if match]
        majors = dict.fromkeys(version.partition(".")[0] for version in cuda)
        return candidates(
            cuda=[(version, version.partition(".")[0]) for version in cuda],
            nccl=[(version, major) for version in context.offers.upstreams(_NCCL) for major in majors],
        )

    def libraries(self, context: Context, stack: Stack) -> dict[str, Any]:
        """Debian's toolkit when it was asked for as packages.

        cuDNN is a wheel all the same: Debian's package of it is a script that fetches an archive from NVIDIA.
        """
        if context.settings.cuda_from != "packages" or stack.cuda is None:
            return {}
        compiler = (Package(name=_TOOLKIT_GCC),) if context.offers.has(_TOOLKIT_GCC) else ()
        toolkit = context.offers.matching(_TOOLKIT, f"*~{stack.cuda.version}-*") or Package(name=_TOOLKIT)
        fields: dict[str, Any] = {"cuda": (toolkit, *compiler)}
        if stack.nccl is not None and context.offers.has(_NCCL, stack.nccl.version):
            fields["nccl"] = (context.offers.exact(_NCCL, stack.nccl.version),)
        return fields


def kernel_headers(context: Context) -> tuple[Package, ...]:
    """Headers of the kernel that boots next, and the metapackage that brings those of later kernels."""
    release = context.facts.kernel.next
    packages = [Package(name=f"linux-headers-{release}")]
    meta = f"linux-headers-{release.rpartition('-')[2]}"
    if context.offers.has(meta):
        packages.append(Package(name=meta))
    return tuple(packages)


def _modules(series: str) -> dict[ModuleFlavour, str]:
    stem = f"nvidia{series}"
    return {"proprietary": f"{stem}-kernel-dkms", "open": f"{stem}-open-kernel-dkms"}


def _libcuda(series: str) -> str:
    return f"libnvidia{series}-cuda1" if series else "libcuda1"


def _roots(series: str) -> tuple[str, ...]:
    """What goes with a series; all else of it depends on its `alternative`.

    Two series can be installed side by side; the newer one's libraries are in force then, whatever module is loaded.
    """
    return (
        *_modules(series).values(), f"nvidia{series}-alternative", _libcuda(series), f"nvidia{series}-smi",
        f"libnvidia{series}-ptxjitcompiler1", f"firmware-nvidia{series}-gsp",
    )  # fmt: skip


def _flavour_note(offers: Offers, modules: dict[ModuleFlavour, str], choice: DriverChoice) -> tuple[str, ...]:
    """Say why the proprietary module is taken where an open one is offered too."""
    versions = offers.upstreams(modules["open"])
    if choice.module == "open" or not versions or choice.version in versions:
        return ()
    text = f"the open kernel module here is {versions[0]}, the rest of the driver {choice.version}: "
    return (text + "they must be equal, so the proprietary module is taken",)
