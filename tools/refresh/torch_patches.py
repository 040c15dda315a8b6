"""Patch releases of torch, from pip's index and from the channels of PyTorch's own.

No index lists the GPUs that a build has code for, so a person must add a new minor release. A patch inherits the GPU
code of the release that it patches, and is marked as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpusetup.versions import cuda_minor, nv
from tools.refresh import reading
from tools.refresh.asking import Fault
from tools.refresh.gathering import Publication, day_that_was
from tools.refresh.index import Index
from tools.refresh.rows import pythons_of
from tools.refresh.torch import COMPANIONS
from tools.refresh.wheels import by_version, fresh_files

if TYPE_CHECKING:
    from tools.refresh.asking import Place
    from tools.refresh.gathering import Gathering

LANES = "https://download.pytorch.org/whl"
_SOURCE = Publication("index_torch", "Index of torch", "PyTorch", "https://pypi.org/project/torch/")
_LANES_SOURCE = Publication("torch_lanes", "Lanes of PyTorch's own index", "PyTorch", f"{LANES}/")
_LIBRARIES = {"cudnn": "nvidia-cudnn-cu", "nccl": "nvidia-nccl-cu"}
_KEPT = ("variant", "cuda", "default", "status", "code", "cudnn", "nccl")
_COMPANIONS_READ = 4
"""Most releases of a companion that are read to find the one for a patch."""


def look(found: Gathering, index: Index, lanes: Place) -> None:
    """Add patches of torch on the index, with the builds in PyTorch's own channels."""
    known = {row["version"]: row for row in found.rows("torch", "releases")}
    newest_of = {Version(version).release[:2]: row for version, row in known.items()}
    for version, files in fresh_files(index, "torch", set(known)):
        elder = newest_of.get(Version(version).release[:2])
        if elder is None:
            found.leave_out(
                f"torch {version} is left out: no index tells which GPUs it has code for; a newer gpusetup will"
            )
            continue
        row = reading.read(index, files, {*elder["pins"], "torch"})
        pins = _pins(row["requires"], elder["pins"])
        if why := day_that_was(row["date"], found.today) or _unfit(found, pins, elder["pins"]):
            found.leave_out(f"torch {version} is left out: {why}")
            continue
        record = {
            "version": version,
            "date": row["date"],
            "pythons": pythons_of(row).get("x86_64", []),
            "glibc": row.get("wheels", {}).get("glibc_tag", {}).get("x86_64", elder["glibc"]),
            "companions": _own_companions(index, version, pins, elder["companions"]),
            "pins": pins,
        } | {field: elder[field] for field in ("aarch64_default",) if field in elder}
        found.add("torch", "releases", record, _SOURCE)
        for build in [item for item in found.rows("torch", "builds") if item["version"] == elder["version"]]:
            if build.get("default") or _in_lane(found, lanes, build["variant"], version):
                _add_build(found, build, version, pins)


def _pins(asked: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """Return requirements in the matrix's form: exact ones as versions, extras as in the release before."""
    found = {}
    for name, text in asked.items():
        extras = before.get(name, "").partition("]")
        head = extras[0] + extras[1] if extras[1] else ""
        found[name] = head + (text if head else text.removeprefix("=="))
    return found


def _unfit(found: Gathering, pins: dict[str, str], before: dict[str, str]) -> str:
    """Return why a release is not a plain patch: unknown requirements, or another CUDA."""
    if pins.keys() != before.keys():
        return f"it asks for other packages than the release before: {', '.join(sorted(pins.keys() ^ before.keys()))}"
    toolkit = pins.get("cuda-toolkit", "").rpartition("==")[2]
    if toolkit and Version(toolkit) not in {Version(row["wheel"]) for row in found.rows("cuda", "wheel_pins")}:
        return f"it brings cuda-toolkit {toolkit}, which is not known"
    if cuda_minor(toolkit or "0.0") != cuda_minor(before.get("cuda-toolkit", "").rpartition("==")[2] or "0.0"):
        return f"it brings CUDA {toolkit}, another than the release before"
    for name, text in pins.items():
        for component, word in _LIBRARIES.items():
            if name.startswith(word) and text[:1].isdigit() and text not in found.versions(component):
                return f"it brings {name} {text}, which is not known"
    return ""


def _own_companions(index: Index, version: str, pins: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """Return the companions of a release: the torchvision that pins it, and the triton that it requires."""
    told = {"triton": pins["triton"]} if "triton" in pins and "triton" in before else {}
    for name in COMPANIONS:
        if name not in before:
            continue
        for other in sorted(by_version(index, name).items(), reverse=True)[:_COMPANIONS_READ]:
            if reading.read(index, other[1], ("torch",))["requires"].get("torch") == f"=={version}":
                told[name] = str(other[0])
                break
    return told


def _in_lane(found: Gathering, lanes: Place, variant: str, version: str) -> bool:
    """Return whether a channel of PyTorch's own index has a build of a release."""
    try:
        there = Index(f"{lanes.base.rstrip('/')}/{variant}", pause=lanes.web.pause).files("torch")[0]
    except Fault as fault:
        found.leave_out(f"torch {version}+{variant} is left out: {fault}")
        return False
    return any(str(file.version) == f"{version}+{variant}" and not file.yanked for file in there)


def _add_build(found: Gathering, elder: dict[str, Any], version: str, pins: dict[str, str]) -> None:
    build: dict[str, Any] = {field: elder[field] for field in _KEPT if field in elder} | {"version": version}
    if code := elder.get("code"):
        build["code"] = {arch: item | {"confidence": "inferred"} for arch, item in code.items()}
    if elder.get("default"):
        for field, word in _LIBRARIES.items():
            pinned = (text for name, text in pins.items() if name.startswith(word) and text[:1].isdigit())
            build[field] = next(pinned, elder.get(field))
    else:
        build["libs_confidence"] = "inferred"
    why = f"the GPUs that it has code for are those of {elder['version']}"
    source = _SOURCE if elder.get("default") else _LANES_SOURCE
    found.add("torch", "builds", build, source, why=why, order=lambda row: (nv(row["version"]), nv(row["cuda"])))
