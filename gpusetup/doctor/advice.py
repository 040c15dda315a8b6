"""Decode the numbers in a message: which CUDA, which driver branch, which builds would run."""

import re
from collections.abc import Callable

from gpusetup.doctor import builds
from gpusetup.doctor.catalogue import (
    Groups,
    catalogue,
    cuda_errors,
    errors_by_name,
    errors_by_number,
    expressions,
    meaning,
    sxid,
    sxids,
)
from gpusetup.doctor.library_packages import soname_advice
from gpusetup.doctor.package_advice import version_advice
from gpusetup.doctor.scan import scan
from gpusetup.model.diagnosis import CudaError
from gpusetup.recovery.table import known as xid

WORDS = {name: expressions(f"number-{name}")[0] for name in ("xid", "sxid", "api", "error", "needs", "code")}
CAPABILITY = re.compile(r"(?:sm_|compute_)(\d{1,3})(\d)[af]?|(\d{1,3})\.(\d)")


def api_version(number: int) -> str:
    """Return the CUDA version for the number that driver or runtime print: 11040 is 11.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def capability(text: str) -> str | None:
    """Return the compute capability in `sm_90a`, `compute_120` or `9.0`."""
    found = CAPABILITY.fullmatch(text)
    return ".".join(filter(None, found.groups())) if found else None


def bare_numbers(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return (cause, groups) for a text that is little more than a number: `802`, `Xid 79`, `11040`, `cuda>=12.8`."""
    text = re.sub(r"(?i)^what(?:'s| is| does) (?:an? |the )?|(?: means?)?\s*\?*$", "", text.strip()).strip(".!\"'`")
    found = {name: match[1] for name, expression in WORDS.items() if (match := expression.fullmatch(text))}
    if "sxid" in found:
        groups = {"sxid": found["sxid"]}
        return [(meaning("sxid-unknown", groups), groups)]
    if "xid" in found:
        return [(match.cause, {"xid": found["xid"]}) for match in scan(f"NVRM: Xid (PCI:0000:00:00): {found['xid']}, ")]
    if "api" in found:
        return [("driver-too-old", {"driver_api": found["api"]})]
    if "needs" in found:
        return [("container-cuda-requirement", {"needs_cuda": found["needs"]})]
    if "error" in found and (error := errors_by_number().get(int(found["error"]))):
        cause = error.cause if error.cause in catalogue() else "cuda-error"
        return [(cause, {"cuda_number": found["error"]})]
    return []


def details(cause: str, groups: Groups) -> tuple[str, ...]:
    """Return sentences about the numbers in a message."""
    lines: list[str] = []
    for teller in _TELLERS:
        lines += [line for line in teller(cause, groups) if line not in lines]
    return tuple(lines)


def _first(groups: Groups, name: str) -> str:
    return groups.get(name, "").split(", ")[0].strip(" .,()")


def _cuda_names(_: str, groups: Groups) -> list[str]:
    error: CudaError | None = None
    if number := _first(groups, "cuda_number"):
        error = errors_by_number().get(int(number))
    elif name := _first(groups, "cuda_name"):
        error = errors_by_name().get(name)
    elif text := _first(groups, "cuda_text"):
        error = next((entry for entry in cuda_errors() if entry.text and text.startswith(entry.text)), None)
    if error is None:
        return []
    names = " / ".join(name for name in (error.runtime, error.driver) if name)
    said = f' is {names}: "{error.text}".' if error.text else f": {names}."
    return [f"CUDA error {error.number}{said}"]


def _driver_api(cause: str, groups: Groups) -> list[str]:
    lines = []
    ceiling = ""
    if (number := _first(groups, "driver_api")).isdigit() and len(number) == 5:
        ceiling = api_version(int(number))
        lines.append(f"{number} is the driver's CUDA: {ceiling}.")
    elif cause == "driver-too-old" and (shown := _first(groups, "cuda")):
        ceiling = shown
    branch = builds.branch_of(ceiling) if re.fullmatch(r"\d+\.\d+", ceiling) else None
    if branch is None:
        return lines
    lines.append(f"Driver branch R{branch} brings CUDA {ceiling}.")
    return lines + builds.on_branch(branch)


def _firmware(cause: str, groups: Groups) -> list[str]:
    file = _first(groups, "firmware") or _first(groups, "firmware_file")
    if cause != "gsp-firmware-missing" or not file:
        return []
    path = file if file.startswith("/") else f"/lib/firmware/{file}"
    told = [f"The file is {path}."]
    if release := re.search(r"/(?P<release>(?P<branch>\d+)\.[\d.]+)/", path):
        package = f"nvidia-firmware-{release['branch']}-{release['release']}"
        told.append(f"Ubuntu's package with it is {package}, Debian's is firmware-nvidia-gsp.")
    return told


def _needs_cuda(cause: str, groups: Groups) -> list[str]:
    wanted = _first(groups, "needs_cuda")
    if cause != "container-cuda-requirement" or not re.fullmatch(r"\d{1,3}\.\d{1,3}", wanted):
        return []
    return builds.drivers_for(wanted)


def _ptx(_: str, groups: Groups) -> list[str]:
    lines = []
    for name, text in (
        ("ptx", "The program's PTX {} comes from CUDA {}"),
        ("ptx_max", "The driver or ptxas that reads it takes PTX up to {}, CUDA {}"),
    ):
        if (version := _first(groups, name)) and (cuda := builds.cuda_of_ptx(version)):
            lines.append(text.format(version, cuda) + ".")
    return lines


def _capability(cause: str, groups: Groups) -> list[str]:
    if cause not in {"no-kernel-image", "ptxas-arch-unknown", "nvcc-arch-unsupported"}:
        return []
    named = capability(_first(groups, "capability")) or capability(_first(groups, "arch"))
    return builds.for_capability(named, toolkit=cause != "no-kernel-image") if named else []


def _xid(_: str, groups: Groups) -> list[str]:
    lines = []
    for number in filter(str.isdigit, groups.get("xid", "").split(", ")):
        if known := xid(int(number)):
            lines.append(f"Xid {number}: {known.text}. To do: {known.action}.")
        else:
            lines.append(f"Xid {number} is not in our catalogue.")
    if pci := groups.get("pci"):
        lines.append(f"GPU: {pci.strip(':')}.")
    return lines


def _sxid(_: str, groups: Groups) -> list[str]:
    lines = []
    for number in filter(str.isdigit, groups.get("sxid", "").split(", ")):
        if known := sxid(int(number)):
            told = f"{known.text}. The vendor's class: {sxids().classes[known.class_]}"
            lines.append(f"SXid {number}: {told}. To do: {known.action}.")
        else:
            lines.append(f"SXid {number} is not in the vendor's list: whether it is fatal is unknown.")
    return lines


def _pci_id(_: str, groups: Groups) -> list[str]:
    found = _first(groups, "pci_id")
    return builds.of_product(found) if found else []


def _versions(_: str, groups: Groups) -> list[str]:
    pairs = (
        ("fabric", "fabric manager"),
        ("driver", "driver"),
        ("cudnn", "loaded cuDNN"),
        ("cudnn_wanted", "built with cuDNN"),
    )
    told = [f"{words} {shown}" for name, words in pairs if (shown := _first(groups, name))]
    return [", ".join(told).capitalize().replace("cudnn", "cuDNN") + "."] if len(told) > 1 else []


_TELLERS: tuple[Callable[[str, Groups], list[str]], ...] = (
    _firmware,
    _cuda_names,
    _driver_api,
    _needs_cuda,
    _ptx,
    _capability,
    _xid,
    _sxid,
    _pci_id,
    _versions,
    soname_advice,
    version_advice,
)
