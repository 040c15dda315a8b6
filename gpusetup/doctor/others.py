"""What a line shows to be other software's: a cause of the GPU installation is not named for it."""

from __future__ import annotations

import re

__all__ = ["ADDRESS", "MODULE", "NEAR", "NVIDIA", "OURS", "RULES", "another_module", "foreign"]

AMD = re.compile(
    r"\bHIP\b|\b(?:RCCL|Rccl|rccl)\b|\bhip(?:Error|[A-Z_])|\.hip\b|\b(?:rocm|ROCm|ROCR|MIOpen|amdgpu)|\bgfx\d{3,4}\b"
)
"""AMD's stack words its errors as CUDA does."""

NO_GPU = re.compile(r"\bdevice:CPU:\d|\bDefaultCPUAllocator\b|\bMPS backend\b")
"""Frameworks name the device that failed: the processor, or Apple's GPU."""

TRIED = re.compile(r"\bPlan failed with\b")
"""cuDNN's search for the fastest algorithm goes on to the next one."""

ADDRESS = re.compile(r"\b(?:https?|ftp)://([\w.-]+)(\S*)")
OURS = re.compile(
    r"nvidia|cuda|docker|ubuntu|debian|canonical|launchpad|fedora|centos|redhat|rocky|almalinux|amazonaws\.com/|amzn"
    r"|torch|flash-attention|vllm|oracle|suse|epel|rpmfusion|negativo17|lambda|kernel\.org|archlinux|localhost",
    re.IGNORECASE,
)
"""Repositories that a GPU installation takes packages from: NVIDIA's, Docker's and the distributions'."""

RULES = {
    "cuda": (AMD, NO_GPU, TRIED),
    "pytorch": (AMD, NO_GPU),
    "libraries": (AMD, NO_GPU),
    "nccl": (AMD,),
}


MODULE = re.compile(
    r"/var/lib/dkms/[\w.+-]+/|\bdkms (?:build|install|add)\b[^\n]{0,40} (?:-m )?[A-Za-z][\w.+-]*/?\d?|\b[\w+]+-dkms\b"
    r"|DKMS module:? '?[A-Za-z]|\bKERNELRELEASE=|\bM=/\S+"
)
"""Names the module that a build is about."""
NVIDIA = re.compile(r"nvidia|nvrm|\bnv-", re.IGNORECASE)
NEAR = {"dkms-build-failed", "dkms-headers-missing", "dkms-kernel-too-new", "dkms-compiler-missing", "dpkg-failed"}
"""Causes whose words every module's build has: the lines around tell whose it is."""


def another_module(cause: str, near: str) -> bool:
    """Tell whether the lines around are about the build of a module that is none of NVIDIA's."""
    return cause in NEAR and MODULE.search(near) is not None and NVIDIA.search(near) is None


def foreign(area: str, line: str) -> bool:
    """Tell whether a line with a cause's words is about other software than the GPU installation."""
    if area == "packages":
        addresses = [f"{host}{path}" for host, path in ADDRESS.findall(line)]
        return bool(addresses) and not any(map(OURS.search, addresses))
    return any(rule.search(line) for rule in RULES.get(area, ()))
