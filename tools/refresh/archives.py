"""New releases of CUDA and cuDNN, from the manifests of NVIDIA's archives and the list that pairs CUDA with drivers.

A manifest has version, date and components. No machine-readable source lists the GPUs and compilers of a new minor
release of CUDA, so a person must add it; an update inherits them from its known release.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.versions import cuda_minor, nv
from tools.refresh.asking import Fault
from tools.refresh.gathering import Publication, day_that_was

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.refresh.asking import Place
    from tools.refresh.gathering import Gathering

CUDA_ARCHIVES = "https://developer.download.nvidia.com/compute/cuda/redist"
CUDNN_ARCHIVES = "https://developer.download.nvidia.com/compute/cudnn/redist"
PAIRING = "https://developer.download.nvidia.com/compute/cuda/repos/runfile/x86_64"
_MANIFEST = re.compile(r"redistrib_([1-9][0-9]?\.[0-9]{1,2}\.[0-9]{1,2})\.json")
_CUDNN = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,3}")
_SOURCES = {
    "cuda": Publication("cuda_archives", "CUDA archives by release", "NVIDIA", f"{CUDA_ARCHIVES}/"),
    "cudnn": Publication("cudnn_archives", "cuDNN archives by release", "NVIDIA", f"{CUDNN_ARCHIVES}/"),
    "pairing": Publication("runfile_pairing", "Installers of CUDA and the drivers in them", "NVIDIA", f"{PAIRING}/"),
}


class _Named(msgspec.Struct, frozen=True):
    version: str


class _Pair(msgspec.Struct, frozen=True):
    """The relevant fields of an installer."""

    cuda: _Named
    nvidia_driver: _Named | None = None


class _Cudnn(msgspec.Struct, frozen=True):
    """The relevant fields of cuDNN's archives."""

    version: str
    cuda_variant: tuple[str, ...]


def cuda(found: Gathering, places: Mapping[str, Place]) -> None:
    """Add updates of known minor releases of CUDA, with the installer's driver if the list names it."""
    minors: dict[str, list[dict[str, Any]]] = {}
    for row in found.rows("cuda", "releases"):
        minors.setdefault(row["minor"], []).append(row)
    for version in _newer(found, "cuda", places["cuda"]):
        minor = cuda_minor(version)
        if minor not in minors:
            found.leave_out(
                f"CUDA {version} is left out: {minor} is new, and no list tells its GPUs, compilers and lowest driver; "
                "a newer gpusetup will"
            )
            continue
        if nv(version) < max(nv(row["version"]) for row in minors[minor]):
            continue  # older than what is known of its minor: left out on purpose
        manifest = _manifest(found, places["cuda"], "cuda", version)
        if manifest is not None:
            _add_cuda(found, places["pairing"], version, max(row["driver_branch"] for row in minors[minor]))


def _add_cuda(found: Gathering, pairing: Place, version: str, branch: int) -> None:
    record: dict[str, Any] = {
        "version": version,
        "minor": cuda_minor(version),
        "label": f"patch {nv(version).numbers[2]}",
        "driver_branch": branch,
        "system": False,  # an archive is no package: that one exists is told by a repository or an installer
    }
    driver = None
    try:
        pair = msgspec.json.decode(pairing.read(f"version_{version}.json"), type=_Pair)
    except Fault as fault:
        if not fault.missing:
            found.leave_out(f"the installer of CUDA {version}: {fault}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found.leave_out(f"the installer of CUDA {version}: this is not its description, or not all of it: {error}")
    else:
        if not pair.cuda.version.startswith(cuda_minor(version) + "."):
            found.leave_out(f"the installer of CUDA {version} is left out: it says to be of {pair.cuda.version!r}")
            return
        record["system"] = True
        driver = pair.nvidia_driver.version if pair.nvidia_driver is not None else None
    if driver is not None:
        if driver not in found.versions("driver", "versions"):
            found.leave_out(f"CUDA {version} is left out: its installer brings driver {driver!r}, which is not known")
            return
        if int(driver.partition(".")[0]) != branch:
            found.leave_out(
                f"CUDA {version} is left out: its installer brings driver {driver}, CUDA {record['minor']} is of "
                f"R{branch}: a person must look"
            )
            return
        record |= {"driver": driver, "installer_driver": driver}
    found.add("cuda", "releases", record, _SOURCES["cuda"], why="" if driver else "the branch is that of its minor")
    if driver is not None:
        found.change("cuda", "releases", version, _SOURCES["pairing"])


def cudnn(found: Gathering, places: Mapping[str, Place]) -> None:
    """Add releases of cuDNN for known CUDA majors."""
    majors = {row["major"] for row in found.rows("cuda", "majors")}
    for label in _newer(found, "cudnn", places["cudnn"]):
        manifest = _manifest(found, places["cudnn"], "cudnn", label)
        if manifest is None:
            continue
        try:
            told = msgspec.convert(manifest.get("cudnn"), _Cudnn)
        except msgspec.ValidationError as error:
            found.leave_out(f"cuDNN {label} is left out: its manifest does not say which CUDA it is for: {error}")
            continue
        variants = {int(word) for word in told.cuda_variant if word.isdigit()}
        if not _CUDNN.fullmatch(told.version) or not told.version.startswith(f"{label}."):
            found.leave_out(f"cuDNN {label} is left out: its manifest says to be of {told.version!r}")
        elif not variants or not variants <= majors:
            found.leave_out(f"cuDNN {told.version} is left out: it is for CUDA {', '.join(told.cuda_variant)!r}")
        elif told.version not in found.versions("cudnn"):
            found.add(
                "cudnn", "releases", {"version": told.version, "cuda_majors": sorted(variants)}, _SOURCES["cudnn"]
            )


def _newer(found: Gathering, component: str, place: Place) -> list[str]:
    """Return the listed versions newer than the newest known one of all or of its family; report an outdated list."""
    listed = sorted({match[1] for name in place.names() if (match := _MANIFEST.fullmatch(name))}, key=nv)
    if not listed:
        raise Fault(f"{place} lists no manifest: is it a login page?")
    there = {".".join(version.split(".")[:3]) for version in found.versions(component)}
    major = [version for version in there if nv(version).major == nv(listed[-1]).major]
    newest = max(major, key=nv, default="")
    if newest and nv(cuda_minor(listed[-1])) < nv(cuda_minor(newest)):
        found.leave_out(
            f"{component}: the list of archives ends at {listed[-1]}, {newest} is known: it may be an old copy"
        )
    return [version for version in listed if version not in there and _later(version, there)]


def _later(version: str, known: set[str]) -> bool:
    """Return whether a version is newer than the known ones of its minor release; older ones were left out."""
    family = [nv(other) for other in known if other.split(".")[:2] == version.split(".")[:2]]
    newest = max(nv(other) for other in known)
    return nv(version) > max(family) if family else nv(version) > newest


def _manifest(found: Gathering, place: Place, component: str, version: str) -> dict[str, Any] | None:
    """Return a manifest; report and return None if it is missing, incomplete or of another release."""
    name = f"redistrib_{version}.json"
    what = f"{component} {version} is left out"
    try:
        manifest = msgspec.json.decode(place.read(name), type=dict[str, Any])
    except Fault as fault:
        found.leave_out(f"{what}: {fault}" + ("; it is listed, so it may come in some minutes" * fault.missing))
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found.leave_out(f"{what}: {name} is not a manifest, or not all of it: {error}")
        return None
    label, product = manifest.get("release_label"), manifest.get("release_product", component)
    if label != version or product != component:
        found.leave_out(f"{what}: its manifest is of {product!r} {label!r}")
        return None
    if why := day_that_was(str(manifest.get("release_date") or ""), found.today):
        found.leave_out(f"{what}: {why}")
        return None
    return manifest
