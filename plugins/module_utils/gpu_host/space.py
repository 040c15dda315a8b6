"""Required disk space, charged to the file system that each folder is on."""

import errno
import os
from typing import Any, Dict, Iterable, List

from .failure import of_system
from .packages import Plan

_MB = 1 << 20
_DKMS_MB = 900  # source, build tree and modules of one driver
_MODULES_MB = 150  # installed modules of one kernel
_LISTS_MB = 64  # lists of more repositories
_VMLINUZ_MB = 16
_GROWTH_MB = 8
_CACHES = {"apt": "/var/cache/apt/archives", "dnf": "/var/cache", "zypper": "/var/cache"}
_LISTS = {"apt": "/var/lib/apt/lists", "dnf": "/var/cache", "zypper": "/var/cache"}
_WRITTEN = ("/", "/etc", "/usr", "/var", "/tmp", "/var/tmp")  # noqa: S108 - package managers write there


def check_writable(state_folder: str) -> None:
    """Fail if a file system that every change writes to is read-only or full."""
    for row in rows(dict.fromkeys((*_WRITTEN, state_folder), 0)):
        if row["read_only"] or not row["free"]:
            number = errno.EROFS if row["read_only"] else errno.ENOSPC
            raise of_system(OSError(number, os.strerror(number), row["for"][0]))


def needs(manager: str, plan: Plan, images: Iterable[int], kernels: int, builds: bool) -> Dict[str, int]:
    """Return {folder: bytes} that a transaction needs.

    `images` are the sizes of the initramfs images that are rebuilt while the old ones stay; `kernels` is the number of
    new kernels, each with its own image.
    """
    found = {"/usr": max(0, plan["disk_bytes"]), _CACHES[manager]: plan["download_bytes"], "/boot": 0}
    found[_LISTS[manager]] = found.get(_LISTS[manager], 0) + _LISTS_MB * _MB
    largest = max([*images, 0])
    if largest:
        found["/boot"] = image_space(largest) + kernels * (largest + _VMLINUZ_MB * _MB)
    if builds:
        found["/var/lib/dkms"] = _DKMS_MB * _MB
        found["/lib/modules"] = _MODULES_MB * _MB
    return found


def image_space(size: int) -> int:
    """Return the bytes needed to rebuild an initramfs while the old one stays; the new one may be larger."""
    return size + max(size // 8, _GROWTH_MB * _MB)


def rows(wanted: Dict[str, int]) -> List[Dict[str, Any]]:
    """Return one row per file system: {"path", "needed", "free", "read_only", "for"}; without an inode none is free."""
    found: Dict[Any, Dict[str, Any]] = {}
    for path, need in sorted(wanted.items()):
        there = existing(path)
        device, space = os.stat(there).st_dev, os.statvfs(there)
        free = space.f_bavail * space.f_frsize if space.f_ffree or not space.f_files else 0
        read_only = bool(space.f_flag & os.ST_RDONLY)
        new = {"path": _mount_point(there), "needed": 0, "free": free, "read_only": read_only, "for": []}
        row = found.setdefault((device, read_only), new)
        row["needed"] += need
        row["for"].append(path)
    return sorted(found.values(), key=lambda row: str(row["path"]))


def existing(path: str) -> str:
    """Return a folder, or the nearest existing folder above it."""
    path = os.path.realpath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _mount_point(path: str) -> str:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
