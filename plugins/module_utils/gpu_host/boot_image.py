"""The initramfs of a kernel, made anew: module options and blacklists count from there on."""

import os
import shutil
from typing import Callable, Dict, Optional, Sequence

from ..gpu_probe import kernels
from . import process, space
from .failure import HostFailure

Log = Optional[Callable[[str], None]]


def path_of(kernel: str) -> Optional[str]:
    """Return where the initramfs of a kernel is, None where it has none."""
    paths = [path.format(kernel) for path in kernels.INITRAMFS]
    return next((path for path in paths if os.path.exists(path)), None)


def rebuild(kernel: str, path: str, env: Dict[str, str], log: Log = None) -> None:
    """Make it anew; it stays as it was where there is no room."""
    (boot,) = space.rows({os.path.dirname(path): space.image_room(os.path.getsize(path))})
    if boot["free"] < boot["needed"]:
        raise HostFailure(
            "GS-472",
            "/boot is too full to rebuild the initramfs",
            path,
            "{} MB free, {} MB are needed".format(boot["free"] >> 20, boot["needed"] >> 20),
            "remove an old kernel; the old initramfs is untouched",
        )
    if shutil.which("update-initramfs", path=env["PATH"]):
        command(["update-initramfs", "-u", "-k", kernel], env, log)
    elif shutil.which("dracut", path=env["PATH"]):
        command(["dracut", "--force", "--kver", kernel, path], env, log)
    else:
        raise HostFailure(
            "GS-481",
            "no tool to rebuild the initramfs is installed",
            path,
            hint="install initramfs-tools or dracut",
        )


def command(argv: Sequence[str], env: Dict[str, str], log: Log = None) -> None:
    """Run one to its end; another code than 0 is a failure with its last words."""
    code, tail = process.stream(argv, env, lambda _line: None, log=log)
    if code:
        raise HostFailure("GS-482", f"{argv[0]} failed", " ".join(argv), " | ".join(tail[-5:]))
