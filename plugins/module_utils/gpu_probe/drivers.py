"""The drivers of NVIDIA GPUs: NVIDIA's own (loaded, built, as libraries, from whom), and nouveau or nova."""

import re
from typing import Any, Dict, List, Optional

from . import initramfs, libraries, modules
from .host import LiveHost, lines_with
from .packages import is_driver

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
            versions = [text for text in versions if _VERSION.fullmatch(text)]
            if versions:
                return max(versions, key=_numbers)
    return None


def library_files(host: LiveHost, triplet: str) -> Dict[str, Dict[str, str]]:
    """Return {library: {file that the loader could choose: version}} for the driver's libraries.

    Libraries of cuda-compat are left out: they belong to another driver on purpose.
    """
    arch = triplet.partition("-")[0]
    found = {}
    for name, files in libraries.loadable(host, arch, "", DRIVER_LIBRARIES).items():
        paths = [item["leads_to"] for item in files if "/compat/" not in item["leads_to"]]
        versions = {path: path.rpartition(".so.")[2] for path in paths}
        found[name] = {path: text for path, text in versions.items() if _VERSION.fullmatch(text)}
    return found


def _numbers(version: str) -> List[int]:
    return [int(piece) for piece in re.findall(r"\d+", version)]


def _from_packages(packages: Dict[str, Any]) -> List[Dict[str, Any]]:
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
                    files = modules.listing(host, release)
                    there = any("/updates/dkms/" in path or "/extra/" in path for path in files)
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


_MODPROBE = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
_ARGUMENT = re.compile(r"(?:blacklist|rdblacklist)=(?:[\w,-]*,)?nouveau(?:,|$)|^nouveau\.modeset=0$")


def nouveau(host: LiveHost, kernels: Dict[str, Any], loaded: List[str], seconds: float = 15) -> Dict[str, Any]:
    """Return the state of nouveau, including what the initramfs of the running and the next kernel contains."""
    files = blacklist_files(host)
    images = [_image(host, kernels, kernel, seconds) for kernel in kernels["installed"] if kernel["initramfs"]]
    following = next((image for image in images if image["kernel"] == kernels["next"]), None)
    argument = any(_ARGUMENT.search(item) for item in kernels["cmdline_next"])
    return {
        "loaded": modules.has_nouveau(loaded),
        "blacklisted": bool(files) or argument,
        "in_initramfs": following["nouveau"]
        if following
        else (None if kernels["running"] != kernels["next"] else False),
        "blacklist_files": files,
        "cmdline": any(_ARGUMENT.search(item) for item in kernels["cmdline"]),
        "cmdline_next": argument,
        "loads_at_boot": _loads(kernels, following, bool(files), argument),
        "initramfs": images,
    }


def blacklist_files(host: LiveHost) -> List[str]:
    """Return the modprobe.d files that blacklist nouveau; a file hides those of the same name in later folders."""
    found, seen = [], set()
    for folder in _MODPROBE:
        for name in host.names(folder, "*.conf", "nouveau.blacklisted"):
            if name in seen:
                continue
            seen.add(name)
            text = host.read(folder + "/" + name, "nouveau.blacklisted", keep=lines_with(r"nouveau|nova|nvidia")) or ""
            if initramfs.BLACKLIST.search(text):
                found.append(folder + "/" + name)
    return found


def _image(host: LiveHost, kernels: Dict[str, Any], kernel: Dict[str, Any], seconds: float) -> Dict[str, Any]:
    answer = {"path": kernel["initramfs"], "kernel": kernel["release"], "nouveau": None, "blacklist": None, "why": None}
    if kernel["release"] not in (kernels["next"], kernels["running"]):
        answer["why"] = "not read: this kernel neither runs nor boots next"
        return answer
    label = "initramfs:" + kernel["initramfs"]
    seen = host.observe(label, lambda: initramfs.inspect(host.inside(kernel["initramfs"]), seconds))
    answer.update(seen or {"why": "not in the capture"})
    if answer["why"]:
        host.note("nouveau.in_initramfs", answer["why"])
    return answer


def _loads(
    kernels: Dict[str, Any], image: Optional[Dict[str, Any]], blacklisted: bool, argument: bool
) -> Optional[bool]:
    """Return whether the next boot would load nouveau for a GPU; None when unknown."""
    if argument:
        return False
    if image and image["nouveau"] and image["blacklist"] is False:
        return True
    following = next((kernel for kernel in kernels["installed"] if kernel["release"] == kernels["next"]), None)
    if following and following["nouveau"] and not blacklisted:
        return True
    return None if image and image["nouveau"] is None else False
