"""CUDA toolkits, cuDNN and NCCL on the system (not those in Python wheels), and what the dynamic loader could load."""

import json
import posixpath
import re
import struct
from typing import Any, Dict, List, Optional, Tuple

from .host import LiveHost

_TOOLKIT = re.compile(r"^cuda-(\d+(?:\.\d+){0,2})$")
_DEFINE = re.compile(r"^#define (?:CUDNN|NCCL)_(MAJOR|MINOR|PATCHLEVEL|PATCH)\s+(\d+)", re.MULTILINE)


def cuda(host: LiveHost) -> Dict[str, Any]:
    default = host.link("/usr/local/cuda")
    for _hop in range(3):
        following = host.link(default) if default and default.startswith("/etc/alternatives") else None
        default = following or default
    toolkits = []
    for name in host.names("/usr/local", "cuda-*"):
        path = "/usr/local/" + name
        match = _TOOLKIT.fullmatch(name)
        if match and host.kind(path) == "folder" and not host.link(path):
            version = _toolkit_version(host, path) or match.group(1)
            toolkits.append({"version": version, "path": path, "nvcc": host.exists(path + "/bin/nvcc")})
    if host.exists("/usr/bin/nvcc") and host.exists("/usr/lib/nvidia-cuda-toolkit"):
        toolkits.append({"version": None, "path": "/usr/lib/nvidia-cuda-toolkit", "nvcc": True})
    if default and not default.startswith("/"):
        default = "/usr/local/" + default
    return {"toolkits": toolkits, "default": default.rstrip("/") if default else None}


def _toolkit_version(host: LiveHost, path: str) -> Optional[str]:
    text = host.read(path + "/version.json")
    if not text:
        return None
    try:
        return str(json.loads(text)["cuda"]["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def cudnn(host: LiveHost, packages: Dict[str, Any], triplet: str) -> List[Dict[str, Any]]:
    """Return the cuDNN installs: packages first, then a copied header."""
    found = _packaged(packages, r"^(?:libcudnn\d+(?:-cuda-\d+)?|cudnn\d*(?:-cuda-\d+)?|nvidia-cudnn)$")
    headers = ["/usr/include/cudnn_version.h", "/usr/local/cuda/include/cudnn_version.h"]
    headers.append(f"/usr/include/{triplet}/cudnn_version.h")
    return found or _headers(host, headers)


def nccl(host: LiveHost, packages: Dict[str, Any], triplet: str) -> List[Dict[str, Any]]:
    """Return the NCCL installs: packages first, then a copied header."""
    found = _packaged(packages, r"^(?:libnccl2?|libnccl-nvidia)$")
    return found or _headers(host, ["/usr/include/nccl.h", f"/usr/include/{triplet}/nccl.h"])


def _packaged(packages: Dict[str, Any], pattern: str) -> List[Dict[str, Any]]:
    return [
        {"version": _upstream(package["version"]), "source": name, "package_version": package["version"]}
        for name, package in sorted(packages.items())
        if package["state"] == "installed" and re.match(pattern, name)
    ]


def _upstream(version: str) -> str:
    """2.27.3-1+cuda12.9 -> 2.27.3."""
    return re.sub(r"^\d+:", "", version).split("-")[0].split("+")[0]


def _headers(host: LiveHost, paths: List[str]) -> List[Dict[str, Any]]:
    found = []
    for path in paths:
        fields = dict(_DEFINE.findall(host.read(path, keep=_defines) or ""))
        if "MAJOR" in fields:
            pieces = [fields["MAJOR"], fields.get("MINOR", "0"), fields.get("PATCHLEVEL", fields.get("PATCH", "0"))]
            found.append({"version": ".".join(pieces), "source": path, "package_version": None})
    return found


def _defines(text: str) -> str:
    return "".join(match.group(0) + "\n" for match in _DEFINE.finditer(text))


LOADER_CACHE = "/etc/ld.so.cache"
LOADED = (
    "libcuda.so.1", "libcuda.so", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libnccl.so.2",
    "libcudnn.so.8", "libcudnn.so.9",
)  # fmt: skip
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sII B3x I 3I")
_ENTRY = struct.Struct("<iIIIQ")
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_TYPE_MASK, _ELF, _ELF_LIBC6 = 0xFF, 1, 3
_ARCH = {"x86_64": 0x0300, "aarch64": 0x0A00}


def loadable(host: LiveHost, arch: str, library_path: str, libraries: Tuple[Any, ...] = LOADED) -> Dict[str, Any]:
    """Return {library: [{"path", "leads_to"}]}, the loader's choice first; `leads_to` is the target of links."""
    cached = cached_files(host.read_bytes(LOADER_CACHE) or b"", arch)
    places = [folder.rstrip("/") for folder in library_path.split(":") if folder]
    found = {}
    for name in libraries:
        paths = (
            [folder + "/" + name for folder in places]
            + cached.get(name, [])
            + [folder + "/" + name for folder in _DEFAULT]
        )
        there = [path for path in dict.fromkeys(paths) if host.exists(path)]
        if there:
            found[name] = [{"path": path, "leads_to": link_target(host, path)} for path in there]
    return found


def link_target(host: LiveHost, path: str) -> str:
    """Return the path that symbolic links lead to, inside the host."""
    for _hop in range(20):
        target = host.link(path)
        if not target:
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return path


def cached_files(raw: bytes, arch: str = "x86_64") -> Dict[str, Any]:
    """Return the files in ld.so.cache by library name, in the loader's order; empty for an unknown format."""
    begin = raw.find(_MAGIC)
    if begin < 0 or len(raw) < begin + _HEADER.size:
        return {}
    raw = raw[begin:]
    count = _HEADER.unpack_from(raw)[1]
    found: Dict[str, List[str]] = {}
    for index in range(min(count, (len(raw) - _HEADER.size) // _ENTRY.size)):
        flags, key, value, _os, _hwcap = _ENTRY.unpack_from(raw, _HEADER.size + index * _ENTRY.size)
        if flags & _TYPE_MASK not in (_ELF, _ELF_LIBC6) or flags & 0xFF00 not in (0, _ARCH.get(arch, 0)):
            continue
        name, path = _string(raw, key), _string(raw, value)
        if name and path:
            found.setdefault(name, []).append(path)
    return found


def _string(raw: bytes, at: int) -> str:
    end = raw.find(b"\0", at, at + 4096)
    return raw[at:end].decode("utf-8", "replace") if 0 <= at < len(raw) and end > at else ""
