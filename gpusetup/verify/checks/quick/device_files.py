"""The device files exist, are the driver's, and this user may open them.

CUDA needs /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidiaN per GPU. Without nvidia-uvm nvidia-smi works and
every CUDA program ends with error 999 or 100. A file with another major number is a leftover or something put over
it.

To do: `nvidia-modprobe -u -c 0`, load nvidia_uvm at boot, add the user to the group that owns the files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items, took

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("device.files", "Device files are usable", needs=("gpu",), seconds=took("device_files"))
def judge(machine: Machine) -> Finding:
    """Judge every file that CUDA needs."""
    found = machine.collected("device_files")
    files: dict[str, dict[str, Any]] = {entry["path"]: entry for entry in found.get("files", [])}
    majors: dict[str, int] = found.get("majors", {})
    if not majors and not files:
        if machine.gpus:
            return Finding("unsupported", "this system has no NVIDIA device files, but the driver answers (WSL)")
        return Finding("fail", "no /dev/nvidia* file exists: the driver is not loaded")
    minors = sorted(
        int(match.group(1))
        for text in machine.collected("proc_gpus").values()
        if (match := re.search(r"Device Minor:\s*(\d+)", str(text)))
    )
    wanted = [
        ("/dev/nvidiactl", "nvidiactl"),
        ("/dev/nvidia-uvm", "nvidia-uvm"),
        *((f"/dev/nvidia{minor}", "nvidia") for minor in minors),
    ]
    items = [_one(path, files.get(path), majors.get(kind, majors.get("nvidia-frontend"))) for path, kind in wanted]
    if any("name" in machine.opened(key) for key in machine.workers):
        items = [_made_since(item) if item.subject == "/dev/nvidia-uvm" else item for item in items]
    return from_items(items, f"{counted(len(items), 'file')}, usable by this user")


def _made_since(item: Item) -> Item:
    """Return a warning for a missing file: CUDA opened a GPU after the files were listed, so it made the file."""
    if item.text != "is missing":
        return item
    return Item(item.subject, "warn", "was missing until CUDA made it: load nvidia_uvm at boot")


def _one(path: str, entry: dict[str, Any] | None, major: int | None) -> Item:
    if entry is None or entry.get("error"):
        return Item(path, "fail", "is missing" if entry is None else str(entry["error"])[:80])
    if not entry.get("character") or (major is not None and entry.get("major") != major):
        text = f"is not a device of the driver (major {entry.get('major')}, the driver has {major})"
        return Item(path, "fail", text, entry.get("major"), major)
    if not entry.get("access"):
        text = f"this user may not open it (mode {entry.get('mode')}, owner {entry.get('uid')}:{entry.get('gid')})"
        return Item(path, "fail", text, entry.get("mode"), "0666")
    return Item(path, "pass", measured=entry.get("mode"))
