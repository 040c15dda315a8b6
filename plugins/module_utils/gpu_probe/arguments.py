"""The arguments of a kernel's command line that matter to a GPU."""

import re
from typing import List

_ARGUMENT = re.compile(
    r"(?:(?:rd\.driver\.blacklist|rdblacklist|modprobe\.blacklist|module_blacklist)=[\w,-]+"
    r"|(?:nouveau|nvidia|nvidia[-_]drm|nova_core)\.\w+=\w+|nomodeset|(?:intel_|amd_)?iommu(?:\.\w+)?=[\w,]+)"
)


def of_gpus(cmdline: str) -> List[str]:
    """Return the arguments that matter to a GPU, once each, in their order."""
    found = []
    for match in _ARGUMENT.findall(cmdline):
        if match not in found:
            found.append(match)
    return found
