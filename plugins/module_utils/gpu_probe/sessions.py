"""Who uses the machine's GPUs now: display sessions and processes."""

import os
import re
from typing import Any, Dict, List, Tuple

from .host import LiveHost

_DEVICE = re.compile(r"^/dev/nvidia(\d+|ctl|-uvm)$")


def display(host: LiveHost, gpus: List[Dict[str, Any]], others: List[Dict[str, Any]], laptop: bool) -> Dict[str, Any]:
    """Return whether somebody looks at a screen, and whether another GPU shares the work."""
    sessions = []
    for name in host.names("/run/systemd/sessions"):
        fields = dict(
            re.findall(
                r"^(\w+)=(.*)$", host.read("/run/systemd/sessions/" + name, keep=_session_lines) or "", re.MULTILINE
            )
        )
        if fields.get("TYPE") in ("x11", "wayland", "mir") and fields.get("CLASS", "user") in ("user", "greeter"):
            sessions.append({"type": fields["TYPE"], "class": fields.get("CLASS", "user")})
    manager = host.link("/etc/systemd/system/display-manager.service")
    return {
        "sessions": sessions,
        "manager": manager.rsplit("/", 1)[-1].replace(".service", "") if manager else None,
        "hybrid": bool(gpus and others),
        "other_gpus": others,
        "laptop": laptop,
    }


def _session_lines(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if re.match(r"(TYPE|CLASS|STATE)=", line))


def gpu_processes(host: LiveHost) -> List[Dict[str, Any]]:
    """Return the processes that hold an NVIDIA device open; other users' need root."""
    if not host.exists("/dev/nvidiactl"):
        return []
    seen: Tuple[List[Dict[str, Any]], int] = host.observe("gpu_processes", _scan) or ([], 0)
    found, hidden = seen
    if hidden:
        host.note("processes", f"{hidden} processes of other users could not be read (needs root)")
    return found


def _scan() -> Tuple[List[Dict[str, Any]], int]:
    found: List[Dict[str, Any]] = []
    hidden = 0
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            held = [os.readlink(f"/proc/{pid}/fd/{handle}") for handle in os.listdir(f"/proc/{pid}/fd")]
            if any(_DEVICE.match(path) for path in held):
                with open(f"/proc/{pid}/comm") as handle:
                    found.append({"pid": int(pid), "command": handle.read().strip()})
        except PermissionError:
            hidden += 1
        except OSError:
            continue
    return sorted(found, key=lambda process: process["pid"]), hidden
