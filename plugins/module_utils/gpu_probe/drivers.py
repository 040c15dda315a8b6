"""The NVIDIA drivers on the host: loaded, built, as libraries, and who installed them."""

import re
from typing import Any, Dict, List, Optional

from . import loader, modules
from .host import LiveHost

LIBRARY_FOLDERS = (
    "/usr/lib/{triplet}",
    "/usr/lib/{triplet}/nvidia/current",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    "/opt/nvidia/lib64",
)
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer", "/usr/local/bin/nvidia-uninstall")
_VERSION = re.compile(r"\d{2,3}\.\d+(?:\.\d+)?")
# Packages whose version is the driver's version.
_DRIVER_PACKAGE = re.compile(
    r"^(?:nvidia-(?:driver|kernel|open-kernel|dkms|headless|utils|smi|open|tesla|alternative|legacy)|libcuda1|libnvidia-(?:compute|ml)|"
    r"kmod-nvidia|akmod-nvidia|cuda-drivers|nvidia-x11-drv|xorg-x11-drv-nvidia|linux-modules-nvidia|nvidia-linux-grid)"
)
_NOT_A_DRIVER = re.compile(
    r"^nvidia-(?:driver-(?:assistant|local-repo|pinning)|kernel-common|alternative|open-kernel-common|kernel-support|legacy-check)|-source|-container"
)


def collect(
    host: LiveHost, kernels: Dict[str, Any], packages: Dict[str, Any], triplet: str
) -> Optional[Dict[str, Any]]:
    """Return the driver's state, None when the host has no trace of a driver."""
    loaded = modules.loaded_nvidia(host)
    library = library_version(host, triplet)
    files = library_files(host, triplet)
    installs = _from_packages(packages)
    runfile = _runfile(host, packages)
    if runfile:
        installs.append({"origin": "runfile", "version": library, "packages": [], "uninstaller": runfile})
    following = next(
        (kernel["nvidia"] for kernel in kernels["installed"] if kernel["release"] == kernels["next"]), None
    )
    built = following or next((kernel["nvidia"] for kernel in reversed(kernels["installed"]) if kernel["nvidia"]), None)
    if not (loaded or library or installs or built):
        return None
    on_disk = built["version"] if built else None
    version = on_disk or library or next((item["version"] for item in installs if item["version"]), None)
    version = version or (loaded or {}).get("version")
    return {
        "version": version,
        "flavour": (built or {}).get("flavour") or (loaded or {}).get("flavour"),
        "loaded": loaded,
        "library": library,
        "libraries": {name: sorted(set(found.values()), key=_numbers) for name, found in files.items()},
        "library_files": {path: version for found in files.values() for path, version in found.items()},
        "module": on_disk,
        "mismatch": bool(loaded and loaded["version"] and library and loaded["version"] != library),
        "origins": sorted({item["origin"] for item in installs}),
        "installs": installs,
    }


def library_version(host: LiveHost, triplet: str) -> Optional[str]:
    """Return the version of the user-space driver library that programs load, None without one."""
    for folder in LIBRARY_FOLDERS:
        place = folder.format(triplet=triplet)
        for stem in ("libnvidia-ml.so.", "libcuda.so."):
            versions = [name[len(stem) :] for name in host.names(place, stem + "*.*")]
            versions = [text for text in versions if _VERSION.match(text)]
            if versions:
                return max(versions, key=_numbers)
    return None


def library_files(host: LiveHost, triplet: str) -> Dict[str, Dict[str, str]]:
    """Return {library: {file that the loader could choose: version}} for the driver's libraries.

    Libraries of cuda-compat are left out: they belong to another driver on purpose.
    """
    arch = triplet.partition("-")[0]
    found = {}
    for name, files in loader.collect(host, arch, "", DRIVER_LIBRARIES).items():
        paths = [item["leads_to"] for item in files if "/compat/" not in item["leads_to"]]
        versions = {path: path.rpartition(".so.")[2] for path in paths}
        found[name] = {path: text for path, text in versions.items() if _VERSION.match(text)}
    return found


def _numbers(version: str) -> List[int]:
    return [int(piece) for piece in re.findall(r"\d+", version)]


def is_driver(name: str) -> bool:
    """Return whether a package contains a driver, or a part of one with the driver's version."""
    return bool(_DRIVER_PACKAGE.match(name)) and not _NOT_A_DRIVER.search(name)


def _from_packages(packages: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Group installed driver packages by their origin."""
    groups: Dict[str, Dict[str, Any]] = {}
    for name, package in sorted(packages.items()):
        bare = name.split(":")[0]
        match = _VERSION.search(re.sub(r"^\d+:", "", package["version"]))
        if package["state"] != "installed" or not match or not is_driver(bare):
            continue
        if bare.startswith(("linux-modules-nvidia", "kmod-nvidia")):
            match = _VERSION.search(name + " " + package["version"]) if bare.startswith("kmod") else None
        group = groups.setdefault(package["origin"], {"origin": package["origin"], "versions": [], "packages": []})
        group["packages"].append(name)
        if match:
            group["versions"].append(match.group(0))
    return [
        {
            "origin": group["origin"],
            "version": max(group["versions"], key=group["versions"].count) if group["versions"] else None,
            "packages": group["packages"],
            "uninstaller": None,
        }
        for group in groups.values()
    ]


def _runfile(host: LiveHost, packages: Dict[str, Any]) -> Optional[str]:
    """Return the uninstaller left by a .run install, None without one or when a package owns it."""
    if any(re.match(r"^(nvidia-installer|nvidia-uninstall)", name) for name in packages):
        return None
    return next((path for path in _UNINSTALLERS if host.exists(path)), None)


def dkms(host: LiveHost) -> List[Dict[str, Any]]:
    """Return DKMS's state of each module and kernel, read from its tree (the command takes half a second)."""
    found: List[Dict[str, Any]] = []
    tree = "/var/lib/dkms"
    for module in host.names(tree):
        if not re.match(r"^(nvidia|gdrdrv)", module):
            continue
        for version in host.names(tree + "/" + module):
            place = f"{tree}/{module}/{version}"
            if not host.exists(place + "/source"):
                continue
            built = False
            for release in host.names(place):
                if not re.match(r"^\d+\.\d+", release):
                    continue
                for arch in host.names(place + "/" + release):
                    if host.kind(f"{place}/{release}/{arch}/module") != "folder":
                        continue
                    built = True
                    there = _dkms_installed(host, release)
                    found.append(
                        {
                            "module": module,
                            "version": version,
                            "kernel": release,
                            "arch": arch,
                            "state": "installed" if there else "built",
                        }
                    )
            if not built:
                log = place + "/build/make.log"
                state = "failed" if host.exists(log) else "added"
                found.append({"module": module, "version": version, "kernel": None, "arch": None, "state": state})
    return found


def _dkms_installed(host: LiveHost, release: str) -> bool:
    return any("/updates/dkms/" in path or "/extra/" in path for path in modules.listing(host, release))
