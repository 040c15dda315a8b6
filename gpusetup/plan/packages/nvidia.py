"""What NVIDIA's repositories for apt and dnf share: where they are, fabric manager's names, and the libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from gpusetup.model.plan import Package
from gpusetup.versions import cuda_minor, nv

if TYPE_CHECKING:
    from gpusetup.model.stack import DriverChoice, Stack
    from gpusetup.plan.packages.base import Context

__all__ = ["FABRIC_PLAIN_FROM", "fabric_names", "library_packages", "nvidia_sources"]

FABRIC_PLAIN_FROM = 580
"""From this branch the fabric manager's packages carry no branch, ten branches before the driver's own."""

Manager = Literal["apt", "dnf"]


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
    if branch >= FABRIC_PLAIN_FROM:
        names = ["nvidia-fabricmanager", "libnvidia-nscq"]
    else:
        manager_name = f"nvidia-fabricmanager-{branch}" if manager == "apt" else "nvidia-fabric-manager"
        names = [manager_name, f"libnvidia-nscq-{branch}"]
    packages = [offers.exact(name, choice.version) for name in names]
    if context.facts.nvswitch.kind == "nvlink5":
        packages += [Package(name="nvlsm"), Package(name="infiniband-diags")]
    return tuple(packages)


def library_packages(context: Context, stack: Stack, manager: Manager) -> dict[str, Any]:
    """Return toolkit, cuDNN and NCCL as packages, unless they are to come as wheels."""
    if context.settings.cuda_from == "wheels" or context.settings.python_adopt or stack.cuda is None:
        return {}
    minor = cuda_minor(stack.cuda.version)
    toolkit = f"cuda-toolkit-{minor.replace('.', '-')}"
    fields: dict[str, Any] = {
        "cuda": (_at(context, toolkit, stack.cuda.version),),
        "cuda_roots": ({"version": minor, "path": f"/usr/local/cuda-{minor}"},),
        "cuda_default": minor,
    }
    if stack.cudnn is not None:
        fields["cudnn"] = (_cudnn(context, stack.cudnn.version, stack.cudnn.cuda),)
    if stack.nccl is not None:
        fields["nccl"] = _nccl(context, stack.nccl.version, stack.nccl.cuda, manager)
    return fields


def _at(context: Context, name: str, version: str) -> Package:
    """Return the package at this version, or at the newest patch of the same minor that the repository offers."""
    offers = context.offers
    if offers.has(name, version) or not offers.has(name):
        return offers.exact(name, version)
    return offers.newest(name)


def _cudnn(context: Context, version: str, cuda: str) -> Package:
    if nv(version).major >= 9:
        return _at(context, f"libcudnn{nv(version).major}-cuda-{cuda.partition('.')[0]}", version)
    name = f"libcudnn{nv(version).major}"
    return context.offers.matching(name, f"{version}-*+cuda{cuda}") or Package(name=name, version=f"{version}-*+cuda*")


def _nccl(context: Context, version: str, cuda: str, manager: Manager) -> tuple[Package, ...]:
    name, major = "libnccl2" if manager == "apt" else "libnccl", cuda.partition(".")[0]
    for pattern in (f"{version}-*+cuda{cuda_minor(cuda)}*", f"{version}-*+cuda{major}.*", f"*+cuda{major}.*"):
        if found := context.offers.matching(name, pattern):
            return (found,)
    return (Package(name=name, version=f"{version}-*+cuda{cuda_minor(cuda)}*"),)
