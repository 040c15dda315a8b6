"""Container runtimes at work: since when one runs, whether it holds containers, its restart."""

import re
import time
from typing import Dict, List, Optional

from . import process
from .failure import HostFailure


def since(runtime: str, env: Dict[str, str]) -> Optional[float]:
    """Return since when a runtime's service is active, None when it is not."""
    argv = ["systemctl", "show", "--property=ActiveState,ActiveEnterTimestampMonotonic", runtime + ".service"]
    _code, text, _error = process.output(argv, env, 30)
    fields = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    if fields.get("ActiveState") != "active":
        return None
    return time.time() - time.monotonic() + int(fields.get("ActiveEnterTimestampMonotonic") or 0) / 1e6


def running(runtime: str, env: Dict[str, str]) -> Optional[int]:
    """Return how many containers a runtime holds; None when it does not say, which must not be taken for none."""
    if runtime == "containerd":
        spaces = _lines(["ctr", "namespaces", "ls", "-q"], env)
        if spaces is None:
            return None
        tasks = [_lines(["ctr", "-n", space, "tasks", "ls", "-q"], env) for space in spaces]
        return None if None in tasks else sum(len(found) for found in tasks if found is not None)
    found = _lines(["docker", "ps", "-q"] if runtime == "docker" else ["crictl", "ps", "-q"], env)
    return None if found is None else len(found)


def _lines(argv: List[str], env: Dict[str, str]) -> Optional[List[str]]:
    code, text, _error = process.output(argv, env, 30)
    return None if code else text.split()


def may_restart(runtime: str, policy: str, env: Dict[str, str]) -> bool:
    """Tell whether a runtime may be restarted now: when told, or when nothing runs in it."""
    return policy == "always" or (policy == "idle" and running(runtime, env) == 0)


def restart(runtime: str, env: Dict[str, str], *, knows_nvidia: bool = True) -> None:
    """Restart a runtime, and look whether it came back and, where it shall, knows NVIDIA's."""
    code, _out, error = process.output(["systemctl", "restart", runtime], env, 120)
    if code:
        _code, journal, _error = process.output(
            ["journalctl", "-u", runtime, "-n", "15", "--no-pager", "-o", "cat"], env, 20
        )
        raise HostFailure(
            "GS-490", f"{runtime} did not start with its new configuration", error.strip(), journal.strip()[-900:],
            "journalctl -u " + runtime,
        )  # fmt: skip
    if runtime != "docker" or not knows_nvidia:
        return
    code, names, error = process.output(
        ["docker", "info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}"], env, 60
    )
    if code == 0 and "nvidia" not in names.split():
        raise HostFailure(
            "GS-490", "docker runs without NVIDIA's runtime: it does not read /etc/docker/daemon.json",
            "it knows " + (names.strip() or "none"),
            hint="see which file it reads: systemctl cat docker (look for --config-file)",
        )  # fmt: skip
