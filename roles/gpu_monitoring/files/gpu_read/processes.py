"""Describe the processes on a GPU from /proc: user, command and container."""

import os
import pwd
import re
from typing import Any, Dict, Optional, Tuple

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.commands import mask

__all__ = ["Processes", "container_of"]

_COMMAND_LIMIT = 160
_ID = r"([0-9a-f]{12})[0-9a-f]{52}"
_CONTAINERS = (
    (re.compile(r"/kubepods.*?pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"), "pod"),
    (re.compile(r"libpod-(?:conmon-)?" + _ID), "podman"),
    (re.compile(r"docker[-/]" + _ID), "docker"),
    (re.compile(r"(?:cri-containerd|crio|containerd)[-/:]+" + _ID), "container"),
    (re.compile(r"/slurm[^/]*/(?:.*/)?job_(\d+)"), "slurm job"),
    (re.compile(r"/lxc(?:\.payload)?[./]([\w.-]+)"), "lxc"),
    (re.compile(r"/machine\.slice/(?:machine-|systemd-nspawn@)([\w.-]+?)\.(?:scope|service)"), "machine"),
)


class Processes:
    """Reads /proc once per process; the start time distinguishes processes with a reused pid."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        self._known: Dict[Tuple[int, str], Dict[str, Any]] = {}
        self._asked: Dict[Tuple[int, str], Dict[str, Any]] = {}

    def describe(self, pid: int) -> Dict[str, Any]:
        """Return {"user", "command", "container"}; None for what is unknown, as in another PID namespace."""
        key = (pid, self._started(pid))
        found = self._known.get(key) or self._look(pid)
        self._asked[key] = found
        return found

    def forget(self) -> None:
        """Forget the processes that were not described since the last call."""
        self._known, self._asked = self._asked, {}

    def _look(self, pid: int) -> Dict[str, Any]:
        return {
            "user": self._user(pid),
            "command": self._command(pid),
            "container": container_of(self._read(pid, "cgroup")),
        }

    def _started(self, pid: int) -> str:
        words = self._read(pid, "stat").rpartition(")")[2].split()
        return words[19] if len(words) > 19 else ""

    def _user(self, pid: int) -> Optional[str]:
        try:
            uid = os.stat(f"{self.root}/{pid}").st_uid
        except OSError:
            return None
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def _command(self, pid: int) -> Optional[str]:
        words = self._read(pid, "cmdline").replace("\0", " ").strip() or self._read(pid, "comm").strip()
        return mask(" ".join(words.split()))[:_COMMAND_LIMIT] or None

    def _read(self, pid: int, name: str) -> str:
        try:
            with open(f"{self.root}/{pid}/{name}", "rb") as handle:
                return handle.read(65536).decode("utf-8", "replace")
        except OSError:
            return ""


def container_of(cgroup: str) -> Optional[str]:
    """Return the container or job of a control group: "docker 3f2a9c1b7d4e", "slurm job 4711"; None without one."""
    for pattern, kind in _CONTAINERS:
        found = pattern.search(cgroup)
        if found:
            return kind + " " + found.group(1).replace("_", "-")
    return None
