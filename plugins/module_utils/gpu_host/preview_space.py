"""Part of the preview: is there enough space for a transaction and everything that comes with it?"""

import os
import re
from typing import Any, Dict, List, Optional

from . import local_repository, packages, space, way_back

KERNEL = re.compile(r"^(?:linux-image-\d|kernel-(?:core|default|azure|rt|64kb)$|kernel$|kernel6\.\d+$)")


def check(look: Any, answer: Dict[str, Any]) -> None:
    """Report file systems with too little space."""
    plan: Optional[packages.Plan] = answer["transaction"]
    needed = _packages_space(look, plan, answer) if plan is not None else {}
    kept = way_back.kept_bytes(look.way, look.params["state_dir"])
    if kept:
        needed[look.params["state_dir"]] = kept
    room = sum(local_repository.size(source, look.params["state_dir"]) for source in look.params["sources"])
    if room:
        needed[look.params["state_dir"]] = needed.get(look.params["state_dir"], 0) + room
    for path, megabytes in look.params["space_mb"].items():
        needed[path] = needed.get(path, 0) + (megabytes << 20)
    if not needed:
        return
    answer["space"] = space.rows(needed)
    for row in answer["space"]:
        if row["read_only"]:
            text = "{path} is mounted read-only, and {0} is on it".format(", ".join(row["for"]), **row)
            hint = "mount -o remount,rw {path}; the kernel log may say why".format(**row)
            look.find("refuse", "read-only", text, hint, "GS-472")
        if row["free"] < row["needed"]:
            text = "{path} has {0} MB free, {1} MB are needed (for {2})".format(
                row["free"] >> 20, -(-row["needed"] >> 20), ", ".join(row["for"]), **row
            )
            hint = "free some space (apt-get clean, dnf clean all, zypper clean, old kernels)"
            if set(row["for"]) & set(look.params["space_mb"]):
                hint += "; the Python environment can be elsewhere: gpusetup_python_path"
            look.find("refuse", "space", text, hint, "GS-472")


def _packages_space(look: Any, plan: packages.Plan, answer: Dict[str, Any]) -> Dict[str, int]:
    images = _images(look) if look.params["driver_version"] else []
    new_kernels = sum(1 for name in plan["install"] if KERNEL.match(name))
    builds = any(item["builds"] for item in answer["kernels"])
    return space.needs(look.params["manager"], plan, images, new_kernels, builds)


def _images(look: Any) -> List[int]:
    kernels = look.machine.wanted_kernels(look.params["kernels"])
    paths = [item["initramfs"] for item in look.machine.kernels()["installed"] if item["release"] in kernels]
    return [os.path.getsize(path) for path in paths if path and os.path.isfile(path)]
