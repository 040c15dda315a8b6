"""The doctor's queries to the matrix about drivers, CUDA versions and GPUs."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from gpusetup.matrix.gpus import gpu_by_id, kind_of
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.domains import DriverValue
from gpusetup.resolve.domains import branch_of as branch_of_driver
from gpusetup.resolve.naming import listed
from gpusetup.resolve.rules import code_for, compiles_for, need_of_minor, relation
from gpusetup.versions import cuda_minor, nv

if TYPE_CHECKING:
    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.release import ArchCode, TensorflowRelease, TorchBuild
    from gpusetup.model.request import Relation


@cache
def _matrix() -> Matrix:
    return matrix()


def refused(facts: HostFacts) -> tuple[str, ...] | None:
    """Return why apply would refuse to install a driver on a machine; None if it would install one."""
    from gpusetup.plan.preflight import apply_refused
    from gpusetup.resolve.api import resolve

    found = apply_refused(facts, _matrix(), resolve)
    return None if found is None else (found.note or found.message,)


def branch_of(cuda: str) -> int | None:
    """Return the driver branch that came with this CUDA version."""
    return next((row.branch for row in _matrix().driver.branches if row.cuda == cuda), None)


def cuda_of_driver(driver: str) -> str | None:
    """Return the CUDA version of a driver's branch, or of the newest older branch if the matrix lacks the driver's."""
    branch = branch_of_driver(_matrix(), driver)
    return branch.cuda if branch is not None else None


def needs_driver(cuda: str) -> str | None:
    """Return the lowest driver on which a CUDA of this major runs (minor-version compatibility)."""
    return next((row.min_driver for row in _matrix().cuda.majors if row.major == nv(cuda).major), None)


def compiles(cuda: str, driver: str) -> bool:
    """Return whether a driver compiles the PTX of a CUDA version, because it is at least as new."""
    return _relation(cuda, driver) in ("native", "backward")


def runs(cuda: str, driver: str) -> bool:
    """Return whether programs of this CUDA version run on a driver."""
    return _relation(cuda, driver) is not None


def _relation(cuda: str, driver: str) -> Relation | None:
    branch = branch_of_driver(_matrix(), driver)
    if branch is None:
        return None
    known = any(row.version == driver for row in _matrix().driver.versions)
    value = DriverValue(driver, nv(driver), branch, "open", branch.confidence, ended=False, known=known)
    return relation(_matrix(), value, need_of_minor(_matrix(), cuda_minor(cuda)), forward=False)


def _last(branch: int) -> str:
    shown = [row.version for row in _matrix().driver.versions if row.branch == branch and row.platform == "linux"]
    return max(shown, key=nv) if shown else str(branch)


def torch_build(version: str, arch: str) -> TorchBuild | None:
    """Return the record of an installed torch (2.7.1+cu126); without a suffix it is PyPI's build for the CPU."""
    public, _, variant = version.partition("+")
    if not variant and arch != "x86_64":
        variant = next((row.aarch64_default for row in _matrix().torch.releases if row.version == public), "") or "cpu"
    for build in _matrix().torch.builds:
        if build.version == public and (build.variant == variant or (not variant and build.default)):
            return build
    return None


def on_branch(branch: int) -> list[str]:
    """Return sentences about the builds that `resolve` chooses on the newest driver of a branch."""
    driver = _last(branch)
    shown = [text for name in ("torch", "cupy", "jax", "tensorflow") if (text := _fitting_build(name, driver))]
    lines = [f"The newest builds that run on {driver}: {', '.join(shown)}."] if shown else []
    above = [row for row in _matrix().cuda.majors if nv(row.min_driver) > nv(driver)]
    return lines + [f"Builds for CUDA {row.major} need driver {row.min_driver} or newer." for row in above]


def _fitting_build(component: str, driver: str) -> str:
    """Return the build of a framework that `resolve` chooses for an installed driver; empty if none fits."""
    from gpusetup.resolve.constraints import build
    from gpusetup.resolve.preferences import best

    found = best(build(_matrix(), Request(requirements=(Requirement(component=component),), driver=driver)))
    if found is None:
        return ""
    value: Any = found[component]
    if component == "torch":
        return f"torch {value.version}+{value.build.variant}"
    name = f"jax[{value.release.extra}]" if component == "jax" else component
    return f"{value.release.package if component == 'cupy' else name} {value.version}"


def drivers_for(cuda: str) -> list[str]:
    """Return sentences about the drivers that satisfy a required CUDA version."""
    lines = []
    branch = branch_of(cuda)
    if branch is not None:
        lines.append(f"CUDA {cuda} came with driver branch R{branch}: that driver or a newer one satisfies it.")
    floor = needs_driver(cuda)
    if floor is not None:
        lines.append(f"Programs for CUDA {nv(cuda).major} run from driver {floor} on when they carry code for the GPU.")
    return lines


def cuda_of_ptx(ptx: str) -> str | None:
    """Return the first CUDA whose compiler emits this PTX version."""
    return next((row.minor for row in _matrix().cuda.toolchains if row.ptx == ptx), None)


def for_capability(capability: str, *, toolkit: bool = False) -> list[str]:
    """Return sentences about the architecture of a compute capability and the builds with code for it."""
    known = [row for row in _matrix().driver.architectures if capability in row.capabilities]
    lines = []
    if known:
        branch = f", driver branch R{known[0].min_branch} or newer" if known[0].min_branch else ""
        lines.append(f"Compute capability {capability} is {known[0].name}{branch}.")
    minors = [row.minor for row in _matrix().cuda.toolchains if compiles_for(_matrix(), row.minor, capability)]
    if toolkit and minors:
        lines.append(f"CUDA {minors[0]} to {minors[-1]} compile for it.")
    builds = [
        row
        for row in _matrix().torch.builds
        if row.code and any(code_for(code, capability) for code in row.code.values())
    ]
    if builds and not toolkit:
        first = min(builds, key=lambda row: nv(row.version))
        last = max(builds, key=lambda row: (nv(row.version), nv(row.cuda)))
        lines.append(f"torch has code for it from {first.version}+{first.variant} to {last.version}+{last.variant}.")
    return lines


def filled(text: str) -> str:
    """Fill the {{placeholders}} of a cause's explanation with versions from the matrix."""
    return re.sub(r"\{\{([^}]*)\}\}", lambda place: _STATEMENTS[place[1]](), text)


def _driver_floors() -> str:
    return ", ".join(f"{row.min_driver} for CUDA {row.major}" for row in _matrix().cuda.majors)


def _first_toolkits() -> str:
    """Return the first toolkit for each capability of supported drivers, except those that every toolkit supports."""
    first: dict[str, list[str]] = {}
    for row in _matrix().cuda.toolchains:
        for capability in sorted(_sold(), key=nv):
            known = any(capability in capabilities for capabilities in first.values())
            if not known and compiles_for(_matrix(), row.minor, capability):
                first.setdefault(row.minor, []).append(capability)
    later = list(first.items())[1:]  # every toolkit of the matrix supports the first group
    return ", ".join(
        f"{listed(capabilities)} need{'s' * (len(capabilities) == 1)} CUDA {minor}" for minor, capabilities in later
    )


def _sold() -> set[str]:
    """Return the capabilities of architectures with a first driver branch."""
    return {name for row in _matrix().driver.architectures if row.min_branch for name in row.capabilities}


def _oldest_capability() -> str:
    row = _matrix().cuda.toolchains[-1]
    return f"CUDA {nv(row.minor).major} has nothing below {row.cc_min}"


def _last_branches() -> str:
    ends: dict[int, list[str]] = {}
    for row in _matrix().driver.architectures:
        if row.last_branch and row.name not in ends.setdefault(row.last_branch, []):
            ends[row.last_branch].append(row.name)
    sentences = (f"branch {branch} is the last for {listed(names)}" for branch, names in ends.items())
    text = "; ".join(sentences)
    return text[:1].upper() + text[1:]


_STATEMENTS = {
    "driver floors": _driver_floors,
    "first toolkits": _first_toolkits,
    "last branches": _last_branches,
    "oldest capability": _oldest_capability,
}


def of_product(pci_id: str) -> list[str]:
    """Return a sentence about the GPU with this PCI id and its drivers."""
    found = gpu_by_id(_matrix(), pci_id.lower())
    if not found:
        return [f"{pci_id} is not a product in the matrix."]
    gpu = found[0]
    rows = [row for row in _matrix().driver.architectures if row.name == gpu.arch]
    first = gpu.min_driver or next((str(row.min_branch) for row in rows if row.min_branch), "")
    last = gpu.last_branch or next((row.last_branch for row in rows if row.last_branch), None)
    window = f" from driver {first} on" if first else ""
    window += f" up to branch R{last}" if last else ""
    return [f"{pci_id} is {gpu.name} ({gpu.arch}){':' if window else ''}{window}."]


def demands(pci_id: str, subsystem: str = "") -> GpuKind | None:
    """Return what a GPU requires of its driver; None if the matrix does not have the product."""
    found = gpu_by_id(_matrix(), pci_id.lower(), subsystem)
    return kind_of(_matrix(), found[:1], found[0].name) if found else None


def tensorflow(version: str) -> TensorflowRelease | None:
    """Return a TensorFlow release."""
    return next((row for row in _matrix().tensorflow.releases if row.version == version), None)


def jax_code(version: str, extra: str) -> ArchCode | None:
    """Return the GPU code in a JAX release for a CUDA major."""
    rows = _matrix().jax.releases
    return next((row.code for row in rows if (row.version, row.extra) == (version, extra)), None)
