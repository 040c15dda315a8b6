"""nouveau (and its successor nova): is it loaded, and would it load at the next boot?"""

import re
from typing import Any, Dict, List, Optional

from . import initramfs, modules
from .host import LiveHost

_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_ARGUMENT = re.compile(r"(?:blacklist|rdblacklist)=(?:[\w,-]*,)?nouveau(?:,|$)|^nouveau\.modeset=0$")


def collect(host: LiveHost, kernels: Dict[str, Any], loaded: List[str], seconds: float = 15) -> Dict[str, Any]:
    """Return the state of nouveau, including what the initramfs of the running and the next kernel contains."""
    files = blacklist_files(host)
    images = [_image(host, kernels, kernel, seconds) for kernel in kernels["installed"] if kernel["initramfs"]]
    following = next((image for image in images if image["kernel"] == kernels["next"]), None)
    argument = any(_ARGUMENT.search(item) for item in kernels["cmdline_next"])
    return {
        "loaded": modules.has_nouveau(loaded),
        "blacklisted": bool(files) or argument,
        "in_initramfs": following["nouveau"]
        if following
        else (None if kernels["running"] != kernels["next"] else False),
        "blacklist_files": files,
        "cmdline": any(_ARGUMENT.search(item) for item in kernels["cmdline"]),
        "cmdline_next": argument,
        "loads_at_boot": _loads(kernels, following, bool(files), argument),
        "initramfs": images,
    }


def blacklist_files(host: LiveHost) -> List[str]:
    """Return the modprobe.d files that blacklist nouveau; a file hides those of the same name in later folders."""
    found, seen = [], set()
    for folder in _FOLDERS:
        for name in host.names(folder, "*.conf", "nouveau.blacklisted"):
            if name in seen:
                continue
            seen.add(name)
            text = host.read(folder + "/" + name, "nouveau.blacklisted", keep=_gpu_lines) or ""
            if initramfs.BLACKLIST.search(text):
                found.append(folder + "/" + name)
    return found


def _gpu_lines(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if re.search(r"nouveau|nova|nvidia", line))


def _image(host: LiveHost, kernels: Dict[str, Any], kernel: Dict[str, Any], seconds: float) -> Dict[str, Any]:
    answer = {"path": kernel["initramfs"], "kernel": kernel["release"], "nouveau": None, "blacklist": None, "why": None}
    if kernel["release"] not in (kernels["next"], kernels["running"]):
        answer["why"] = "not read: this kernel neither runs nor boots next"
        return answer
    label = "initramfs:" + kernel["initramfs"]
    seen = host.observe(label, lambda: initramfs.inspect(host.inside(kernel["initramfs"]), seconds))
    answer.update(seen or {"why": "not in the capture"})
    if answer["why"]:
        host.note("nouveau.in_initramfs", answer["why"])
    return answer


def _loads(
    kernels: Dict[str, Any], image: Optional[Dict[str, Any]], blacklisted: bool, argument: bool
) -> Optional[bool]:
    """Return whether the next boot would load nouveau for a GPU; None when unknown."""
    if argument:
        return False
    if image and image["nouveau"] and image["blacklist"] is False:
        return True
    following = next((kernel for kernel in kernels["installed"] if kernel["release"] == kernels["next"]), None)
    if following and following["nouveau"] and not blacklisted:
        return True
    return None if image and image["nouveau"] is None else False
