"""Ubuntu names a driver's packages by series (`-570`, `-570-server`, or none): one takes another's place as a whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.model.package import Package
    from gpusetup.plan.packages.base import Context

__all__ = ["graphics", "graphics_patterns", "of_other_series"]

_GRAPHICS = (
    "libnvidia-gl", "libnvidia-decode", "libnvidia-encode", "libnvidia-extra", "libnvidia-fbc1",
    "xserver-xorg-video-nvidia",
)  # fmt: skip
"""What a desktop has besides; it stays, in the new series."""
_STEMS = (
    *_GRAPHICS, "libnvidia-compute", "libnvidia-cfg1", "nvidia-utils", "nvidia-compute-utils", "nvidia-kernel-common",
    "nvidia-kernel-source", "nvidia-dkms", "nvidia-headless-no-dkms", "nvidia-headless", "nvidia-driver",
)  # fmt: skip
_SERIES = r"(-\d{3}(?:-server)?)"
_PREBUILT = rf"linux-(?:modules|objects|signatures)-nvidia{_SERIES}(?:-open)?-[\w.+-]+"
"""Behind the flavour stands the kernel."""
_NAME = re.compile(rf"(?:({'|'.join(_STEMS)}){_SERIES}?(?:-open)?|{_PREBUILT})")


def of_other_series(context: Context, series: str) -> tuple[str, ...]:
    """Return what is installed of other series than this suffix, by name.

    Ubuntu's archive and NVIDIA's repository say differently what excludes what: alone, apt finds no way between them.
    """
    found = ((name, _NAME.fullmatch(name)) for name in context.facts.packages.installed)
    return tuple(sorted(name for name, match in found if match and (match.group(2) or match.group(3) or "") != series))


def graphics_patterns(context: Context) -> tuple[str, ...]:
    """Return globs of what a desktop has, where it has it."""
    return tuple(f"{stem}*" for stem in _installed_graphics(context))


def graphics(context: Context, series: str, version: str) -> tuple[Package, ...]:
    """Return the desktop's packages that are installed, in this series."""
    names = (f"{stem}{series}" for stem in _installed_graphics(context))
    return tuple(context.offers.exact(name, version) for name in names if context.offers.has(name, version))


def _installed_graphics(context: Context) -> tuple[str, ...]:
    matches = (_NAME.fullmatch(name) for name in context.facts.packages.installed)
    found = {match.group(1) for match in matches if match}
    return tuple(stem for stem in _GRAPHICS if stem in found)
