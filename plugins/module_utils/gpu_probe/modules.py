"""Kernel modules: the loaded ones, and the NVIDIA module file on disk (version, flavour, signer)."""

import gzip
import lzma
import mmap
import os
import re
import struct
import zlib
from typing import Any, Dict, List, Optional

from . import commands, firmware
from .host import LiveHost, lines_with

_FOLDERS = ("/lib/modules/{}", "/usr/lib/modules/{}")
# Debian names its module nvidia-current; its branch packages nvidia-current-open, nvidia-tesla-535 and so on.
_NVIDIA = re.compile(r"(?:^|/)(nvidia(?:-current|-tesla)?(?:-open)?(?:-\d+)?)\.ko(?:\.(?:gz|xz|zst))?$")
_DAMAGED = (OSError, ValueError, LookupError, OverflowError, EOFError, struct.error, lzma.LZMAError, zlib.error)
_OPEN_LICENCE = "dual mit/gpl"
_GPU_MODULES = lines_with(r"^(nvidia|nv_peer_mem|nouveau|nova|gdrdrv|mlx5_|ib_)")
_NVRM = re.compile(
    r"NVRM version: NVIDIA UNIX (Open )?(?:Kernel Module for )?\S+\s+(?:Kernel Module\s+)?(\d+\.\d+(?:\.\d+)?)"
)


def loaded(host: LiveHost) -> List[str]:
    text = host.read("/proc/modules", keep=_GPU_MODULES) or ""
    names = [line.split(" ", 1)[0] for line in text.splitlines() if line]
    built_in = [name for name in ("nouveau", "nova_core", "nvidia") if host.exists(f"/sys/module/{name}/initstate")]
    return sorted(set(names) | set(built_in))


def has_nouveau(names: List[str]) -> bool:
    return "nouveau" in names or "nova_core" in names


def users(host: LiveHost) -> Dict[str, Any]:
    """Return {module: {"references", "holders"}} for the loaded GPU modules."""
    found = {}
    for line in (host.read("/proc/modules", keep=_GPU_MODULES) or "").splitlines():
        pieces = line.split()
        if len(pieces) >= 4 and pieces[2].isdigit():
            holders = [] if pieces[3] == "-" else [name for name in pieces[3].split(",") if name]
            found[pieces[0]] = {"references": int(pieces[2]), "holders": holders}
    return found


def loaded_nvidia(host: LiveHost) -> Optional[Dict[str, Any]]:
    """Return the version and flavour of the loaded NVIDIA module, None when none is loaded."""
    text = host.read("/proc/driver/nvidia/version") or ""
    match = _NVRM.search(text)
    if match:
        return {"version": match.group(2), "flavour": "open" if match.group(1) else "proprietary"}
    version = host.value("/sys/module/nvidia/version")
    return {"version": version, "flavour": None} if version else None


def find(host: LiveHost, release: str) -> Optional[Dict[str, Any]]:
    """Return a kernel's NVIDIA module: {"path", "version", "flavour", "signed", "signer", "key"}; None without one."""
    for path in listing(host, release):
        if _NVIDIA.search(path):
            details = host.observe("modinfo:" + path, lambda found=path: modinfo(host, found)) or {}
            licence = (details.get("license") or "").lower()
            return {
                "path": path,
                "version": details.get("version"),
                "flavour": ("open" if licence == _OPEN_LICENCE else "proprietary") if licence else None,
                "signed": details.get("signed", "signer" in details) if details else None,
                "signer": details.get("signer"),
                "key": details.get("key"),
            }
    return None


def carries(host: LiveHost, release: str, name: str) -> bool:
    suffix = re.compile(rf"/{re.escape(name)}\.ko(\.\w+)?$")
    return any(suffix.search(path) for path in listing(host, release))


def listing(host: LiveHost, release: str) -> List[str]:
    """Return the paths of a kernel's GPU modules: those that modprobe takes, by modules.dep, before all others."""
    folder = next((item.format(release) for item in _FOLDERS if host.kind(item.format(release)) == "folder"), None)
    if folder is None:
        return []
    text = host.read(folder + "/modules.dep", keep=_gpu_paths) or ""
    found = [folder + "/" + line.split(":", 1)[0] for line in text.splitlines()]
    branches = ["kernel/" + name for name in host.names(folder + "/kernel", "nvidia-*")]
    for place in ["updates/dkms", "extra", "updates", "kernel/drivers/video", "extra/nvidia", *branches]:
        found += [f"{folder}/{place}/{name}" for name in host.names(folder + "/" + place, "nvidia*.ko*")]
    return [path for path in dict.fromkeys(found) if host.exists(path)]


def _gpu_paths(text: str) -> str:
    return "".join(
        line.split(":", 1)[0] + ":\n"
        for line in text.splitlines()
        if re.search(r"/(nvidia|nouveau|nova)[^/]*\.ko", line.split(":", 1)[0])
    )


def modinfo(host: LiveHost, path: str) -> Optional[Dict[str, Any]]:
    """Return the description in a module file; the kernel's tools are required only for zstd."""
    real = host.inside(path)
    has_modinfo = os.path.exists("/sbin/modinfo") or os.path.exists("/usr/sbin/modinfo")
    if path.endswith(".zst") or (path.endswith(".xz") and has_modinfo):  # several times faster than Python
        answer = commands.run(["modinfo", real], 10)
        if answer["rc"] != 0:
            return None
        told = dict(re.findall(r"^(\w+):[ \t]*(.*)$", answer["out"], re.MULTILINE))
        return dict(told, **firmware.signature_told(told))
    try:
        with open(real, "rb") as handle:
            if path.endswith(".gz"):
                return _elf_modinfo(gzip.decompress(handle.read()))
            if path.endswith(".xz"):
                return _elf_modinfo(lzma.decompress(handle.read()))
            with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as image:
                return _elf_modinfo(image)
    except _DAMAGED as error:
        host.note("kernel.installed.nvidia", f"{path}: {error}")
        return None


def _elf_modinfo(image: Any) -> Optional[Dict[str, Any]]:
    """Return the key=value strings of the .modinfo section of a 64-bit little-endian ELF file."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    table, entry, count, names_at = struct.unpack_from("<Q", image, 40) + struct.unpack_from("<HHH", image, 58)
    sections = [struct.unpack_from("<IIQQQQ", image, table + entry * index) for index in range(count)]
    names = sections[names_at]
    fields: Dict[str, str] = {}
    for name, _kind, _flags, _address, offset, size in sections:
        start = names[4] + name
        if image[start : start + 9] == b".modinfo\x00":
            for item in bytes(image[offset : offset + size]).split(b"\x00"):
                key, _, value = item.decode("utf-8", "replace").partition("=")
                fields.setdefault(key, value)
    described: Dict[str, Any] = {key: fields[key] for key in ("version", "license", "vermagic") if key in fields}
    return dict(described, **firmware.signature(image))
