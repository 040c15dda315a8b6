"""Which file the dynamic loader takes for a name: LD_LIBRARY_PATH, ld.so.cache, then the default folders."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.doctor.look import Look

__all__ = ["candidates", "parse"]

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sII B3x I 3I")
_ENTRY = struct.Struct("<iIIIQ")
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_TYPE_MASK, _ELF_LIBC6 = 0xFF, 3
_ARCH = {"x86_64": 0x0300, "aarch64": 0x0A00}


def parse(raw: bytes, arch: str = "x86_64") -> dict[str, list[str]]:
    """Return the cache's files by library name, in the loader's order; an unknown format gives nothing."""
    begin = raw.find(_MAGIC)
    if begin < 0 or len(raw) < begin + _HEADER.size:
        return {}
    raw = raw[begin:]
    count = _HEADER.unpack_from(raw)[1]
    found: dict[str, list[str]] = {}
    for index in range(min(count, (len(raw) - _HEADER.size) // _ENTRY.size)):
        flags, key, value, _os, _hwcap = _ENTRY.unpack_from(raw, _HEADER.size + index * _ENTRY.size)
        if flags & _TYPE_MASK != _ELF_LIBC6 and flags & _TYPE_MASK != 1:
            continue
        if flags & 0xFF00 not in {0, _ARCH.get(arch, 0)}:
            continue
        name, path = _text(raw, key), _text(raw, value)
        if name and path:
            found.setdefault(name, []).append(path)
    return found


def _text(raw: bytes, at: int) -> str:
    end = raw.find(b"\0", at, at + 4096)
    return raw[at:end].decode("utf-8", "replace") if 0 <= at < len(raw) and end > at else ""


def candidates(look: Look, name: str) -> list[str]:
    """Return every file that could be meant by a library's name; the loader takes the first."""
    places = [folder.rstrip("/") for folder in look.environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found = [f"{folder}/{name}" for folder in places if look.exists(f"{folder}/{name}")]
    raw = look.files.read_bytes("/etc/ld.so.cache") if look.files is not None else None
    found += [path for path in parse(raw or b"", look.facts.arch).get(name, []) if look.exists(path)]
    found += [f"{folder}/{name}" for folder in _DEFAULT if look.exists(f"{folder}/{name}")]
    return list(dict.fromkeys(found))
