"""What NVIDIA's repositories for apt and dnf share: where they are, fabric manager's names, and the libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.model.plan import Package
from gpusetup.plan.packages.base import candidates
from gpusetup.versions import cuda_minor, nv

if TYPE_CHECKING:
    from gpusetup.model.request import LibraryCandidates
    from gpusetup.model.stack import DriverChoice, Stack
    from gpusetup.plan.packages.base import Context

__all__ = ["fabric_names", "library_candidates", "library_packages", "nvidia_sources"]

Manager = Literal["apt", "dnf"]

_NCCL = {"apt": "libnccl2", "dnf": "libnccl"}
_CUDNN = re.compile(r"libcudnn\d+-cuda-\d+")
_CUDNN_8 = ("libcudnn8", "libcudnn7")
_BUILT = re.compile(r"(?P<version>\d+(?:\.\d+)*)-[^+]*\+cuda(?P<major>\d+)\.")
"""2.27.3-1+cuda12.9: the release, and the CUDA that it was built for."""


def nvidia_sources(context: Context, manager: Manager) -> dict[str, Any]:
    """Return the repository of this distribution and CPU, from NVIDIA or from a mirror with NVIDIA's layout."""
    repository = context.repository
    if repository is None:
        return {}
    source: dict[str, Any] = {
        "name": f"cuda-{repository.folder}" if manager == "apt" else f"cuda-{repository.folder}-{repository.cpu}",
        "kind": manager,
        "uris": [repository.url],
        "key": repository.key,
    }
    if manager == "apt":
        source |= {"suites": ["/"], "components": [], "architectures": []}
    else:
        source |= {"description": "NVIDIA CUDA repository", "module_hotfixes": False, "exclude": [], "priority": 0}
    return {"sources": (source,), "replace": repository.also}


def fabric_names(context: Context, choice: DriverChoice, manager: Manager) -> tuple[Package, ...]:
    """Return fabric manager and its library at exactly the driver's version, where this machine runs NVSwitches."""
    if context.facts.nvswitch is None:
        return ()
    branch, offers = int(choice.branch), context.offers
    if branch >= context.names.fabric_plain_from:
        names = ["nvidia-fabricmanager", "libnvidia-nscq"]
    else:
        manager_name = f"nvidia-fabricmanager-{branch}" if manager == "apt" else "nvidia-fabric-manager"
        names = [manager_name, f"libnvidia-nscq-{branch}"]
    packages = [offers.exact(name, choice.version) for name in names]
    if context.facts.nvswitch.kind == "nvlink5":
        packages += [Package(name="nvlsm"), Package(name="infiniband-diags")]
    return tuple(packages)


def library_candidates(context: Context, manager: Manager) -> tuple[LibraryCandidates, ...]:
    """Return what the repository offers of toolkit, cuDNN and NCCL, unless they are to come as wheels."""
    offers = context.offers
    if not offers.known or not _as_packages(context):
        return ()
    cuda: list[tuple[str, str]] = [
        (version, version.partition(".")[0])
        for name in offers.names("cuda-toolkit-[0-9]*-[0-9]*")
        for version in offers.upstreams(name)
    ]
    cudnn = [
        (version, name.rpartition("-")[2])
        for name in offers.names("libcudnn[0-9]*-cuda-[0-9]*")
        if _CUDNN.fullmatch(name)
        for version in offers.upstreams(name)
    ]
    built = [_BUILT.match(version) for name in _CUDNN_8 for version in offers.versions(name)]
    cudnn += [(match["version"], match["major"]) for match in built if match]
    built = [_BUILT.match(version) for version in offers.versions(_NCCL[manager])]
    nccl = [(match["version"], match["major"]) for match in built if match]
    return candidates(cuda=cuda, cudnn=cudnn, nccl=nccl)


def library_packages(context: Context, stack: Stack, manager: Manager) -> dict[str, Any]:
    """Return toolkit, cuDNN and NCCL as packages, unless they are to come as wheels."""
    if not _as_packages(context) or stack.cuda is None:
        return {}
    offers = context.offers
    minor = cuda_minor(stack.cuda.version)
    fields: dict[str, Any] = {
        "cuda": (offers.exact(f"cuda-toolkit-{minor.replace('.', '-')}", stack.cuda.version),),
        "cuda_roots": ({"version": minor, "path": f"/usr/local/cuda-{minor}"},),
        "cuda_default": minor,
    }
    if stack.cudnn is not None and _offered(context, "libcudnn*"):
        fields["cudnn"] = (_cudnn(context, stack.cudnn.version, stack.cudnn.cuda),)
    if stack.nccl is not None and _offered(context, _NCCL[manager]):
        fields["nccl"] = (_nccl(context, stack.nccl.version, stack.nccl.cuda, manager),)
    return fields


def _as_packages(context: Context) -> bool:
    settings = context.settings
    if settings.cuda_from == "auto" and not _offered(context, "cuda-toolkit-[0-9]*"):
        return False
    return settings.cuda_from != "wheels" and not settings.python_adopt


def _offered(context: Context, pattern: str) -> bool:
    """Tell whether the repository has such a library at all, as far as somebody could look."""
    return not context.offers.known or any(True for _name in context.offers.names(pattern))


def _cudnn(context: Context, version: str, cuda: str) -> Package:
    major = cuda.partition(".")[0]
    if nv(version).major >= 9:
        return context.offers.exact(f"libcudnn{nv(version).major}-cuda-{major}", version)
    name, pattern = f"libcudnn{nv(version).major}", f"{version}-*+cuda{major}.*"
    return context.offers.matching(name, pattern) or Package(name=name, version=pattern)


def _nccl(context: Context, version: str, cuda: str, manager: Manager) -> Package:
    name, minor = _NCCL[manager], cuda_minor(cuda)
    for pattern in (f"{version}-*+cuda{minor}*", f"{version}-*+cuda{minor.partition('.')[0]}.*"):
        if found := context.offers.matching(name, pattern):
            return found
    return Package(name=name, version=f"{version}-*+cuda{minor}*")
