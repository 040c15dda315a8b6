"""Rebuild the initramfs of a kernel so that module options and blacklists take effect."""

import errno
import os
import shutil
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ..gpu_probe import kernels
from ..gpu_probe.host import LiveHost
from . import process, space
from .failure import HostFailure, of_system

Log = Optional[Callable[[str], None]]


def path_of(kernel: str) -> Optional[str]:
    """Return the path of the initramfs that boots with a kernel, None if none was found."""
    return kernels.initramfs_of(LiveHost(), kernel)


def lacking(kernel: str) -> Optional[str]:
    """Return a warning for a bootable kernel without an initramfs that we can find, None for others."""
    if not kernels.bootable(LiveHost(), kernel):
        return None
    return (
        f"no initramfs of kernel {kernel} was found in {', '.join(kernels.ROOTS)}: it was neither checked nor "
        "rebuilt. If the kernel has one, rebuild it by hand"
    )


def check_room(path: str) -> None:
    """Fail if there is too little space to rebuild an initramfs, or none may be written; it stays unchanged."""
    (boot,) = space.rows({os.path.dirname(path): space.image_space(os.path.getsize(path))})
    if boot["read_only"]:
        raise of_system(OSError(errno.EROFS, os.strerror(errno.EROFS), path))
    if boot["free"] < boot["needed"]:
        raise HostFailure(
            "GS-472", boot["path"] + " is too full to rebuild the initramfs", path,
            "{} MB free, {} MB are needed".format(boot["free"] >> 20, boot["needed"] >> 20),
            "remove an old kernel; the old initramfs is untouched",
        )  # fmt: skip


def rebuild(kernel: str, path: str, env: Dict[str, str], log: Log = None) -> None:
    """Rebuild an initramfs; it stays unchanged if there is too little space."""
    check_room(path)
    was = _stamp(path)
    if shutil.which("update-initramfs", path=env["PATH"]):
        command(["update-initramfs", "-u", "-k", kernel], env, log)
        # A hook copies the image to where it boots from; without the hook that copy is still the old one.
        if _stamp(path) == was and path not in _named(kernel) and can_install(kernel, env):
            install(kernel, path, env, log)
    elif path not in _named(kernel) and can_install(kernel, env):
        install(kernel, path, env, log)
    elif shutil.which("dracut", path=env["PATH"]) and not path.endswith(".efi"):
        command(["dracut", "--force", "--kver", kernel, path], env, log)
    else:
        unified = "kernel-install with a plugin that makes unified kernel images"
        hint = "install " + (unified if path.endswith(".efi") else "initramfs-tools or dracut")
        raise HostFailure("GS-481", "no tool to rebuild the initramfs is installed", path, hint=hint)
    if os.path.exists(path) and _stamp(path) == was:
        hint = "does /etc/initramfs-tools/update-initramfs.conf set update_initramfs to something other than yes?"
        raise HostFailure("GS-482", "the initramfs was not rebuilt, although its tool ended well", path, hint=hint)


def can_install(kernel: str, env: Dict[str, str]) -> bool:
    """Return whether kernel-install can add a kernel and its initramfs to the boot loader's partition again."""
    return bool(shutil.which("kernel-install", path=env["PATH"])) and _kernel_file(kernel) is not None


def install(kernel: str, path: str, env: Dict[str, str], log: Log = None) -> None:
    """Have kernel-install rebuild a kernel's boot entry as for a new kernel; its plugins make the initramfs."""
    source = _kernel_file(kernel)
    if source is None or not can_install(kernel, env):
        no_image = f"there is no kernel image of {kernel} outside of the entry"
        note = "kernel-install is not installed" if source else no_image
        hint = "install systemd's kernel-install and the kernel's package again"
        raise HostFailure("GS-481", "the boot entry of a kernel cannot be rebuilt", path, note, hint)
    command(["kernel-install", "add", kernel, source], env, log)


def _kernel_file(kernel: str) -> Optional[str]:
    """Return a kernel's image from its package; the copy next to an initramfs would bring back that initramfs too."""
    places = (place.format(kernel) for place in kernels.IMAGES)
    return next((place for place in places if os.path.isfile(place)), None)


def _named(kernel: str) -> List[str]:
    return [name.format(kernel) for name in kernels.NAMED]


def _stamp(path: str) -> Tuple[int, int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_ino, status.st_size


def command(argv: Sequence[str], env: Dict[str, str], log: Log = None) -> None:
    """Run a command; fail with its last lines if it does not exit with 0."""
    code, tail = process.stream(argv, env, log=log)
    if code:
        raise HostFailure("GS-482", f"{argv[0]} failed", " ".join(argv), " | ".join(tail[-5:]))
