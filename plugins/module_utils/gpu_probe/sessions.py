"""Who uses the machine now: display sessions, processes on its GPUs, and jobs of schedulers."""

import contextlib
import json
import os
import platform
import re
from typing import Any, Dict, List, Tuple

from . import commands
from .host import LiveHost, lines_with

_DEVICE = re.compile(r"^/dev/nvidia(\d+|ctl|-uvm)$")
_KUBELETS = ("/etc/kubernetes/kubelet.conf", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
             "/var/lib/rancher/rke2/agent/kubelet.kubeconfig")  # fmt: skip
"""Kubeconfig files of a node's kubelet: of kubeadm, K3s and RKE2."""
_SCHEDULER_SECONDS = 5.0


def display(host: LiveHost, gpus: List[Dict[str, Any]], others: List[Dict[str, Any]], laptop: bool) -> Dict[str, Any]:
    """Return the graphical sessions, the display manager, and whether the machine has other GPUs (hybrid, laptop)."""
    sessions = []
    for name in host.names("/run/systemd/sessions"):
        text = host.read("/run/systemd/sessions/" + name, keep=lines_with(r"^(TYPE|CLASS|STATE)=")) or ""
        fields = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
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


def gpu_processes(host: LiveHost) -> List[Dict[str, Any]]:
    """Return the processes that hold an NVIDIA device open; seeing other users' processes needs root."""
    if not host.exists("/dev/nvidiactl"):
        return []
    seen: Tuple[List[Dict[str, Any]], int] = host.observe("gpu_processes", lambda: holding(_DEVICE)) or ([], 0)
    found, hidden = seen
    if hidden:
        them = "1 process" if hidden == 1 else f"{hidden} processes"
        host.note("processes", f"{them} of other users could not be read (needs root)")
    return found


def holding(device: "re.Pattern[str]", proc: str = "/proc") -> Tuple[List[Dict[str, Any]], int]:
    """Return the other processes that hold such a device open, and how many processes could not be read."""
    found: List[Dict[str, Any]] = []
    hidden = 0
    for pid in os.listdir(proc):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            held = [os.readlink(f"{proc}/{pid}/fd/{handle}") for handle in os.listdir(f"{proc}/{pid}/fd")]
            if any(device.fullmatch(path) for path in held):
                with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as handle:
                    found.append({"pid": int(pid), "command": handle.read().strip()})
        except PermissionError:
            hidden += 1
        except OSError:
            continue
    return sorted(found, key=lambda process: process["pid"]), hidden


def work(host: LiveHost) -> List[Dict[str, str]]:
    """Return the Slurm jobs and the GPU pods on this machine; captures never contain them."""
    if not host.live:
        return []
    name = platform.node()
    told = _answer("squeue", "--noheader", "--nodelist=" + name.partition(".")[0], "--format=%i|%u|%L|%j")
    found = [_entry("slurm", *line.split("|", 3)) for line in told.splitlines() if line.count("|") > 2]
    kubelet = next((path for path in _KUBELETS if host.exists(path)), "")
    if kubelet:
        where = ("--all-namespaces", "--field-selector=spec.nodeName=" + name.lower(), "--output=json")
        pods = _answer("kubectl", "--kubeconfig=" + kubelet, "get", "pods", *where)
        with contextlib.suppress(ValueError, TypeError, AttributeError, LookupError):  # another kind of answer
            found += [_entry("kubernetes", pod) for pod in gpu_pods(json.loads(pods))]
    return found


def _answer(*argv: str) -> str:
    done = commands.run(argv, _SCHEDULER_SECONDS)
    return str(done["out"]) if done["rc"] == 0 else ""


def _entry(scheduler: str, number: str, user: str = "", left: str = "", name: str = "") -> Dict[str, str]:
    return {"scheduler": scheduler, "id": number.strip(), "user": user, "name": name, "left": left}


def gpu_pods(pods: Dict[str, Any]) -> List[str]:
    """Return the running pods with a GPU, except those of DaemonSets, which stay on their node anyway."""
    found: List[str] = []
    for pod in pods["items"] or ():
        meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        limits = [name for one in containers for name in (one.get("resources") or {}).get("limits") or {}]
        daemon = any(owner.get("kind") == "DaemonSet" for owner in meta.get("ownerReferences") or ())
        ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if any(name.startswith("nvidia.com/") for name in limits) and not daemon and not ended:
            found.append(f"{meta.get('namespace', 'default')}/{meta.get('name', '?')}")
    return found
