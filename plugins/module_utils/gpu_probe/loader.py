"""List the files that the dynamic loader could load for a library: LD_LIBRARY_PATH, ld.so.cache, default folders."""

import posixpath
import struct
from typing import Any, Dict, List, Tuple

from .host import LiveHost

CACHE = "/etc/ld.so.cache"
LIBRARIES = (
    "libcuda.so.1", "libcuda.so", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libnccl.so.2",
    "libcudnn.so.8", "libcudnn.so.9",
)  # fmt: skip
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sII B3x I 3I")
_ENTRY = struct.Struct("<iIIIQ")
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_TYPE_MASK, _ELF, _ELF_LIBC6 = 0xFF, 1, 3
_ARCH = {"x86_64": 0x0300, "aarch64": 0x0A00}


def collect(host: LiveHost, arch: str, library_path: str, libraries: Tuple[Any, ...] = LIBRARIES) -> Dict[str, Any]:
    """Return {library: [{"path", "leads_to"}]}, the loader's choice first; `leads_to` is the target of links."""
    cached = parse(host.read_bytes(CACHE) or b"", arch)
    places = [folder.rstrip("/") for folder in library_path.split(":") if folder]
    found = {}
    for name in libraries:
        paths = (
            [folder + "/" + name for folder in places]
            + cached.get(name, [])
            + [folder + "/" + name for folder in _DEFAULT]
        )
        there = [path for path in _once(paths) if host.exists(path)]
        if there:
            found[name] = [{"path": path, "leads_to": resolved(host, path)} for path in there]
    return found


def _once(paths: List[str]) -> List[str]:
    return list(dict.fromkeys(paths))


def resolved(host: LiveHost, path: str) -> str:
    """Return the path that symbolic links lead to, inside the host."""
    for _hop in range(20):
        target = host.link(path)
        if not target:
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return path


def parse(raw: bytes, arch: str = "x86_64") -> Dict[str, Any]:
    """Return the files in ld.so.cache by library name, in the loader's order; empty for an unknown format."""
    begin = raw.find(_MAGIC)
    if begin < 0 or len(raw) < begin + _HEADER.size:
        return {}
    raw = raw[begin:]
    count = _HEADER.unpack_from(raw)[1]
    found: Dict[str, List[str]] = {}
    for index in range(min(count, (len(raw) - _HEADER.size) // _ENTRY.size)):
        flags, key, value, _os, _hwcap = _ENTRY.unpack_from(raw, _HEADER.size + index * _ENTRY.size)
        if flags & _TYPE_MASK not in (_ELF, _ELF_LIBC6) or flags & 0xFF00 not in (0, _ARCH.get(arch, 0)):
            continue
        name, path = _text(raw, key), _text(raw, value)
        if name and path:
            found.setdefault(name, []).append(path)
    return found


def _text(raw: bytes, at: int) -> str:
    end = raw.find(b"\0", at, at + 4096)
    return raw[at:end].decode("utf-8", "replace") if 0 <= at < len(raw) and end > at else ""
