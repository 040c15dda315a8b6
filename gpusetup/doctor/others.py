"""What a line shows to be other software's: a cause of the GPU installation is not named for it."""

from __future__ import annotations

import re

__all__ = ["foreign"]

_AMD = re.compile(r"\bHIP\b|\bhip(?:Error|[A-Z_])|\.hip\b|\b(?:rocm|ROCm|ROCR|MIOpen|amdgpu)|\bgfx\d{3,4}\b")
"""AMD's stack words its errors as CUDA does."""

_ADDRESS = re.compile(r"\b(?:https?|ftp)://([\w.-]+)(\S*)")
_OURS = re.compile(
    r"nvidia|cuda|docker|ubuntu|debian|canonical|launchpad|fedora|centos|redhat|rocky|almalinux|amazonaws\.com/|amzn"
    r"|oracle|suse|epel|rpmfusion|negativo17|lambda|kernel\.org|archlinux|localhost",
    re.IGNORECASE,
)
"""Repositories that a GPU installation takes packages from: NVIDIA's, Docker's and the distributions'."""

_RULES = {
    "cuda": _AMD,
    "pytorch": _AMD,
    "libraries": _AMD,
}


def foreign(area: str, line: str) -> bool:
    """Tell whether a line with a cause's words is about other software than the GPU installation."""
    if area == "packages":
        addresses = [f"{host}{path}" for host, path in _ADDRESS.findall(line)]
        return bool(addresses) and not any(map(_OURS.search, addresses))
    rule = _RULES.get(area)
    return rule is not None and rule.search(line) is not None
