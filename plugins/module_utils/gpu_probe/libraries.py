"""CUDA toolkits, cuDNN and NCCL on the system (not those in Python wheels)."""

import json
import re
from typing import Any, Dict, List, Optional

from .host import LiveHost

_TOOLKIT = re.compile(r"^cuda-(\d+(?:\.\d+){0,2})$")
_DEFINE = re.compile(r"^#define (?:CUDNN|NCCL)_(MAJOR|MINOR|PATCHLEVEL|PATCH)\s+(\d+)", re.MULTILINE)


def cuda(host: LiveHost) -> Dict[str, Any]:
    """Return the installed toolkits and the folder of the default one."""
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
    except (ValueError, KeyError, TypeError):
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
