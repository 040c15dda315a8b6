"""The kernel command line arguments that affect a GPU."""

import re
from typing import List

_ARGUMENT = re.compile(
    r"(?:(?:rd\.driver\.blacklist|rdblacklist|modprobe\.blacklist|module_blacklist)=[\w,-]+"
    r"|(?:nouveau|nvidia|nvidia[-_]drm|nova_core)\.\w+=\w+|nomodeset|(?:intel_|amd_)?iommu(?:\.\w+)?=[\w,]+)"
)


def of_gpus(cmdline: str) -> List[str]:
    """Return the arguments that affect a GPU, in order, without duplicates."""
    found = []
    for match in _ARGUMENT.findall(cmdline):
        if match not in found:
            found.append(match)
    return found
