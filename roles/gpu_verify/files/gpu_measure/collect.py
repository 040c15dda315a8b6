"""Collect the `quick` half of the observations: what a machine reports about its GPUs without a CUDA context.

The host probe (gpu_probe) describes the machine; here is what only checks need. Standard library only, Python 3.6
syntax. Everything is read with a deadline and returned raw; nothing is judged here.
"""

import glob
import os
import re
import stat
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import child
import exporter
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import facts as probe
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import pci, record, smi
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost, LiveHost

if TYPE_CHECKING:
    from child import Answer

SMI_DEADLINE = 30
TOOL_DEADLINE = 10
# By field name, never from the banner: its labels have changed more than once.
QUERY_FIELDS = ("index", "uuid", "pci.bus_id", "compute_cap")
LOG_LINES = 400
FACTS = (
    "arch", "boot", "kernel", "gpus", "nvswitch", "rdma", "storage", "settings", "driver", "nouveau", "modules",
    "containers", "services", "unreadable", "virtualisation",
)  # fmt: skip
_SUPPORTED_CLOCKS = re.compile(r"\s*<supported_clocks>.*?</supported_clocks>", re.DOTALL)


def _smi(*arguments: str) -> "Answer":
    answer = child.run(["nvidia-smi", *arguments], SMI_DEADLINE)
    answer["stdout"] = _SUPPORTED_CLOCKS.sub("", answer["stdout"])
    return answer


def _not_asked() -> "Answer":
    return {"argv": [], "rc": None, "stdout": "", "stderr": "", "error": "missing", "deadline": 0.0, "seconds": 0.0}


def topology() -> "Answer":
    """Return how the GPUs are connected; not asked for a single GPU, since each nvidia-smi call takes time."""
    return _not_asked() if len(proc_gpus()) == 1 else _smi("topo", "-m")


def read(path: str, limit: int = 65536) -> Optional[str]:
    """Return a small file's text, None when it is missing or unreadable."""
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def device_files() -> Dict[str, Any]:
    """Return every /dev/nvidia* with mode, owner, device number, and whether this user can open it."""
    found: List[Dict[str, Any]] = []
    for path in sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps*/*")):
        try:
            status = os.stat(path)
        except OSError as failure:
            found.append({"path": path, "error": str(failure)})
            continue
        if stat.S_ISDIR(status.st_mode):
            continue
        found.append(
            {
                "path": path,
                "character": stat.S_ISCHR(status.st_mode),
                "mode": f"{stat.S_IMODE(status.st_mode):04o}",
                "uid": status.st_uid,
                "gid": status.st_gid,
                "major": os.major(status.st_rdev),
                "minor": os.minor(status.st_rdev),
                "access": os.access(path, os.R_OK | os.W_OK),
            }
        )
    majors = re.findall(r"^\s*(\d+) (nvidia\S*)$", read("/proc/devices") or "", re.MULTILINE)
    return {"files": found, "majors": {name: int(number) for number, name in majors}}


def proc_gpus() -> Dict[str, Optional[str]]:
    """Return the GPUs that the driver has bound, by PCI address, with the driver's description."""
    found: Dict[str, Optional[str]] = {}
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        found[path.split("/")[-2]] = read(path)
    return found


def fabric_manager() -> "Answer":
    """Return the fabric manager's version."""
    return child.run(["nv-fabricmanager", "--version"], TOOL_DEADLINE)


def imex() -> "Answer":
    """Return the IMEX service's status of its domain."""
    return child.run(["nvidia-imex-ctl", "-N", "-j"], TOOL_DEADLINE)


def gdscheck() -> "Answer":
    """Return how cuFile reads files; asked only if an apply set up GPUDirect Storage, because it is slow."""
    wanted = record.applied().get("gpudirect") or {}
    if wanted.get("storage", "none") == "none":
        return _not_asked()
    found = sorted(glob.glob("/usr/local/cuda*/gds/tools/gdscheck*") + glob.glob("/usr/libexec/gds/tools/gdscheck*"))
    return child.run([found[0] if found else "gdscheck", "-p"], SMI_DEADLINE)


def kernel_log() -> Dict[str, Any]:
    """Return the lines about the driver in this boot's kernel log."""
    for argv in (
        ["journalctl", "-k", "-b", "--no-pager", "-o", "short-iso", "-q"],
        ["dmesg", "--time-format=iso"],
        ["dmesg"],
    ):
        answer = child.run(argv, TOOL_DEADLINE)
        if answer["rc"] == 0 and answer["stdout"]:
            resets = smi.resets(LiveHost())
            whole = "Linux version" in answer["stdout"]  # the kernel's first line; older ones give way to newer ones
            lines = _about_gpus(answer["stdout"])
            return {"source": argv[0], "whole": whole, "lines": lines, "error": None, "resets": resets}
    return {
        "source": None,
        "lines": [],
        "error": answer["error"] or answer["stderr"][-300:] or "the kernel log is empty or not readable",
    }


def _about_gpus(text: str) -> List[str]:
    """Return the last lines about the driver, and the last of each Xid: many lines of one kind hide no other."""
    kept: List[str] = []
    seen: Dict[str, int] = {}
    for line in reversed([line for line in text.splitlines() if re.search(r"NVRM|nvidia|nouveau|\bXid\b", line)]):
        kind = (re.findall(r"Xid \([^)]*\): \d+|fallen off the bus", line) or [""])[0]
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= LOG_LINES:
            kept.append(line)
    return kept[::-1]


def containers() -> Dict[str, Any]:
    """Return the container toolkit's version and the CDI files, if it is installed."""
    version = child.run(["nvidia-ctk", "--version"], TOOL_DEADLINE)
    answer: Dict[str, Any] = {"ctk": version, "cdi": []}
    if version["error"] == "missing":
        return answer
    for path in sorted(glob.glob("/etc/cdi/*") + glob.glob("/var/run/cdi/*")):
        text = read(path, 1 << 20) or ""
        answer["cdi"].append(
            {
                "path": path,
                "kind": (re.findall(r"kind: *\"?([\w./-]+)", text) or [None])[0],
                "devices": re.findall(r"^\s*-?\s*name: *\"?([\w:.-]+)", text, re.MULTILINE)[:200],
                "driver_versions": sorted(set(re.findall(r"libcuda\.so\.(\d[\d.]+\d)", text))),
            }
        )
    return answer


def machine() -> Dict[str, Any]:
    """Return what measurements depend on: user, processors by NUMA node, variables that influence libraries."""
    nodes: Dict[str, Optional[str]] = {}
    for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*")):
        nodes[os.path.basename(path)[4:]] = read(os.path.join(path, "cpulist"))
    return {
        "uid": os.geteuid(),
        "cpus": os.cpu_count(),
        "numa_nodes": nodes,
        "environment": {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("NCCL_", "CUDA_", "NVSHMEM_")) and len(value) < 200
        },
    }


def facts() -> Dict[str, Any]:
    """Return the host probe's facts, reduced to those that checks use."""
    told = probe.collect(LiveHost(), with_candidates=False)
    found: Dict[str, Any] = {name: told[name] for name in FACTS}
    found["state"] = {"lock": (told["state"] or {}).get("lock")}
    return found


def gpus_of_capture(root: str) -> List[Dict[str, Any]]:
    """Return the GPUs of a captured machine, which stands in for a machine without GPUs."""
    gpus: List[Dict[str, Any]] = pci.collect(FolderHost(root))["gpus"]
    return gpus


COLLECTORS: Tuple[Tuple[str, Callable[[], Any]], ...] = (
    ("smi", lambda: _smi("-q", "-x")),
    ("smi_query", lambda: _smi("--query-gpu=" + ",".join(QUERY_FIELDS), "--format=csv,noheader,nounits")),
    ("smi_list", lambda: _smi("-L")),
    ("topology", topology),
    ("nvlink_status", lambda: _smi("nvlink", "-s")),
    ("nvlink_errors", lambda: _smi("nvlink", "-e")),
    ("facts", facts),
    ("module_params", lambda: read("/proc/driver/nvidia/params")),
    ("device_files", device_files),
    ("proc_gpus", proc_gpus),
    ("fabric_manager", fabric_manager),
    ("imex", imex),
    ("gdscheck", gdscheck),
    ("kernel_log", kernel_log),
    ("containers", containers),
    ("machine", machine),
    ("exporter", exporter.look),
)


class Collection:
    """Runs all collectors in parallel threads; the value of one that fails is its error."""

    def __init__(self, names: Optional[Sequence[str]] = None) -> None:
        self.values: Dict[str, Any] = {}
        self.seconds: Dict[str, float] = {}
        self._threads: Dict[str, threading.Thread] = {}
        for name, collector in COLLECTORS:
            if names is None or name in names:
                thread = threading.Thread(target=self._one, args=(name, collector))
                thread.daemon = True
                self._threads[name] = thread
                thread.start()

    def _one(self, name: str, collector: Callable[[], Any]) -> None:
        started = time.monotonic()
        try:
            self.values[name] = collector()
        except Exception as failure:  # a collector's bug must not hide the others
            self.values[name] = {"error": f"{type(failure).__name__}: {failure}"}
        self.seconds[name] = round(time.monotonic() - started, 3)

    def wait(self, name: str) -> Any:
        """Wait for one collector and return its value."""
        self._threads[name].join(SMI_DEADLINE + 10)
        return self.values.get(name)

    def finish(self) -> Dict[str, Any]:
        """Wait for all collectors and return their values."""
        for name in self._threads:
            self.wait(name)
        return dict(self.values)
