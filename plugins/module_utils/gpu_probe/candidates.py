"""List the GPU stack's packages in the configured repositories, from the local indexes only: nothing is fetched."""

import os
import re
import shutil
import tempfile
from typing import Any, Dict, List, Optional

from . import commands
from .host import LiveHost

# Names that a plan may need. `apt-cache` matches patterns slowly, so it lists all names and they are filtered here.
_APT_NAMES = re.compile(
    r"^(?:nvidia-(?:driver|open|dkms|kernel|headless|utils|smi$|settings|persistenced|modprobe|fabricmanager|imex|container|cuda-toolkit|"
    r"cudnn|tesla|firmware|detect).*|cuda-(?:drivers|toolkit|runtime|compat|libraries-\d|keyring|nvcc|cudart-\d|nvrtc-\d).*|cuda|libcuda1|"
    r"libnvidia-(?:compute|container|nscq|ml|cfg).*|libnvsdm.*|nvlsm|libcudnn.*|cudnn.*|libnccl.*|dkms|mokutil|python3-venv|zstd|"
    r"linux-modules-nvidia.*|linux-headers-(?:amd64|arm64|generic|aws|azure|gcp|oracle|cloud-amd64|cloud-arm64)|gcc-\d+)$",
    re.MULTILINE,
)
_DNF_NAMES = (
    "nvidia-driver*", "nvidia-open*", "kmod-nvidia*", "cuda-drivers*", "cuda-toolkit*", "cuda-runtime*", "cuda-compat*",
    "nvidia-fabric*", "nvidia-persistenced", "libcudnn*", "cudnn*", "libnccl*", "nvidia-container-toolkit*",
    "libnvidia-container*", "dkms", "kernel-devel*", "nvidia-imex*", "libnvidia-nscq*", "nvlsm",
)  # fmt: skip
_KEPT = 12


def collect(host: LiveHost, manager: Optional[str], kernel: str, seconds: float = 25) -> Optional[Dict[str, Any]]:
    """Return {name: {"candidate", "installed", "versions", "size", "transitional", "needs"}}, None when unknown."""
    if manager == "apt":
        return _apt(host, kernel, seconds)
    if manager == "dnf":
        return _dnf(host, seconds)
    return None


def _apt(host: LiveHost, kernel: str, seconds: float) -> Optional[Dict[str, Any]]:
    with _AptCache(host) as apt:
        names = host.observe("apt-names", lambda: _apt_names(apt, kernel, seconds))
        if not names or names["why"]:
            host.note("packages.candidates", "apt-cache: " + (names["why"] if names else "missing"))
            return None
        told: Dict[str, Any] = {"rc": 0, "out": ""}
        if names["names"]:
            told = host.run("apt-policy", apt + ["policy"] + names["names"], seconds)
        if told["rc"] != 0:
            host.note("packages.candidates", "apt-cache: " + (told.get("why") or told["err"].strip()[:200]))
            return None
        found = parse_policy(told["out"])
        offered = [name for name, package in sorted(found.items()) if package["candidate"]]
        if offered:
            shown = host.run("apt-show", [*apt, "show", "--no-all-versions", *offered], seconds)
            _add_details(found, shown["out"] if shown["rc"] is not None else "")
    return {name: found[name] for name in offered}


def _apt_names(apt: Any, kernel: Any, seconds: float) -> Any:
    told = commands.run([*apt, "pkgnames"], seconds)
    if told["rc"] != 0:
        return {"names": [], "why": told.get("why") or told["err"].strip()[:200] or "failed"}
    names = set(_APT_NAMES.findall(told["out"]))
    headers = "linux-headers-" + kernel
    return {"names": sorted(names | ({headers} if "\n" + headers + "\n" in told["out"] else set())), "why": None}


class _AptCache:
    """Context that gives the start of an apt-cache command, with a temporary index cache if the host keeps none."""

    def __init__(self, host: LiveHost) -> None:
        self.folder: Optional[str] = None
        self.wanted = host.live and not os.path.exists("/var/cache/apt/pkgcache.bin")

    def __enter__(self) -> List[str]:
        if not self.wanted:
            return ["apt-cache"]
        self.folder = tempfile.mkdtemp(prefix="gpusetup-apt-")
        return ["apt-cache", "-o", "Dir::Cache::pkgcache=" + self.folder + "/pkgcache.bin"]

    def __exit__(self, *_details: object) -> None:
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def parse_policy(text: str) -> Dict[str, Any]:
    """Parse the output of `apt-cache policy`: candidate, installed version, and each version with its sources."""
    found: Dict[str, Any] = {}
    package: Any = None
    version: Any = None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            package = _unknown()
            found[line.rstrip(":")] = package
        elif package is None:
            continue
        elif line.startswith("  Installed: "):
            package["installed"] = _version(line)
        elif line.startswith("  Candidate: "):
            package["candidate"] = _version(line)
        else:
            match = re.match(r"^ (?:\*\*\*|   ) (\S+) (-?\d+)", line)
            if match:
                version = {"version": match.group(1), "sources": []}
                if len(package["versions"]) < _KEPT:
                    package["versions"].append(version)
                continue
            match = re.match(r"^\s+-?\d+ (\S+://\S+|file:\S+) (\S+)", line)
            if match and version is not None:
                version["sources"].append(re.sub(r"(?<=://)[^/@\s]+@", "", match.group(1)) + " " + match.group(2))
    return found


def _unknown() -> Dict[str, Any]:
    return {"candidate": None, "installed": None, "versions": [], "size": None, "transitional": False, "needs": []}


def _version(line: str) -> Optional[str]:
    text = line.split(": ", 1)[1].strip()
    return None if text == "(none)" else text


def _add_details(found: Dict[str, Any], text: str) -> None:
    """Add download size, NVIDIA dependencies, and whether the candidate is a transitional package."""
    for stanza in text.split("\n\n"):
        fields = dict(
            re.findall(r"^(Package|Version|Size|Section|Depends|Description(?:-\w+)?): (.*)$", stanza, re.MULTILINE)
        )
        package = found.get(fields.get("Package", ""))
        if package is None or package["candidate"] != fields.get("Version"):
            continue
        package["size"] = int(fields["Size"]) if fields.get("Size", "").isdigit() else None
        summary = next((value for key, value in fields.items() if key.startswith("Description")), "")
        package["transitional"] = "transitional" in summary.lower() or fields.get("Section", "").endswith("oldlibs")
        package["needs"] = [
            item.strip() for item in fields.get("Depends", "").split(",") if "nvidia" in item or "cuda" in item
        ]


def _dnf(host: LiveHost, seconds: float) -> Optional[Dict[str, Any]]:
    form = "%{name}\t%{epoch}:%{version}-%{release}\t%{repoid}\t%{downloadsize}\\n"
    told = host.run(
        "dnf-repoquery", ["dnf", "-q", "-C", "repoquery", "--available", "--qf", form, *list(_DNF_NAMES)], seconds
    )
    if told["rc"] != 0:
        why = told.get("why") or told["err"].strip().splitlines()[-1:] or ["failed"]
        host.note(
            "packages.candidates", f"dnf -C repoquery: {why if isinstance(why, str) else why[0]} (run dnf makecache)"
        )
        return None
    found: Dict[str, Any] = {}
    for line in told["out"].splitlines():
        pieces = line.strip().split("\t")
        if len(pieces) != 4:
            continue
        name, version, repository, size = pieces
        version = version[2:] if version.startswith("0:") else version
        package = found.setdefault(name, _unknown())
        package["versions"].append(
            {"version": version, "sources": [repository], "size": int(size) if size.isdigit() else None}
        )
    for package in found.values():
        package["versions"].sort(
            key=lambda item: [int(piece) for piece in re.findall(r"\d+", item["version"])], reverse=True
        )
        newest = package["versions"][0]
        package["candidate"], package["size"] = newest["version"], newest["size"]
        package["versions"] = [
            {"version": item["version"], "sources": item["sources"]} for item in package["versions"][:_KEPT]
        ]
    return found
