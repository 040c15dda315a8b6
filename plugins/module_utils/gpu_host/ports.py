"""Which processes listen on a port of this host, read from /proc without any program."""

import glob
import ipaddress
import os
import re
from typing import Dict, Iterator, List, NamedTuple, Tuple

from ..gpu_probe.host import LiveHost
from . import files

_LISTENING = "0A"
_EVERYBODY = {"0.0.0.0", "::"}  # noqa: S104 - as the kernel tells it


class Listener(NamedTuple):
    """A process that listens; its unit is empty if systemd did not start it."""

    pid: int
    program: str
    unit: str


def split(listen: str) -> Tuple[str, int]:
    """Return address and port of "127.0.0.1:9400" or "[::1]:9400"."""
    address, _, port = listen.rpartition(":")
    return address.strip("[]"), int(port)


def listeners(listen: str) -> List[Listener]:
    """Return the processes that listen on this address and port."""
    address, port = split(listen)
    there = [(other, inode) for other, number, inode in _sockets() if number == port]
    inodes = {inode for other, inode in there if other == address or {other, address} & _EVERYBODY}
    return sorted(_owners(inodes)) if inodes else []


def _sockets() -> Iterator[Tuple[str, int, str]]:
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (files.read_text(path) or "").splitlines()[1:]:
            cells = line.split()
            if len(cells) > 9 and cells[3] == _LISTENING:
                address, port = cells[1].split(":")
                yield _address(address), int(port, 16), cells[9]


def _address(text: str) -> str:
    """Return an address from the kernel's table, where each group of four bytes is in the processor's order."""
    raw = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _owners(inodes: "set[str]") -> Iterator[Listener]:
    names, host = {f"socket:[{inode}]" for inode in inodes}, LiveHost()
    for folder in glob.glob("/proc/[0-9]*"):
        if any(host.link(path) in names for path in glob.glob(folder + "/fd/*")):
            yield Listener(int(folder[6:]), os.path.basename(host.link(folder + "/exe") or "?"), _unit(folder))


def _unit(folder: str) -> str:
    """Return a process's unit by its control group; empty for processes in a container."""
    found: Dict[str, int] = {}
    try:
        text = files.read_text(folder + "/cgroup") or ""
    except OSError:
        return ""
    for unit in re.findall(r"/system\.slice/([^/\n]+\.service)$", text, re.MULTILINE):
        found[unit] = found.get(unit, 0) + 1
    return max(found, key=lambda unit: found[unit]) if found else ""
