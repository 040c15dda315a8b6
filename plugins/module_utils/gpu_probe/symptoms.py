"""Collect what a diagnosis needs besides the facts; changes nothing, masks secrets, gives every command a deadline."""

import os
import re
from typing import Any, Dict, List, Tuple

from . import containers, libraries, smi
from .commands import mask
from .host import LiveHost

ENVIRONMENT = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV", "CONDA_PREFIX")
_LOG_COMMANDS = (
    ("kernel-log", ["dmesg"]),
    ("kernel-journal", ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-iso"]),
)
_LOG_FILES = ("/var/log/dmesg", "/var/log/kern.log")
_LOG_LIMIT = 4 * 1024 * 1024
_BUILD_LIMIT = 1024 * 1024
# A log over the limit keeps the lines that may concern a GPU, its bus, its modules or a hanging driver.
_TELLING = re.compile(
    r"(?i)nv|xid|nouveau|pci|aer|dmar|iommu|amd-vi|bar |modul|lockdown|secure|drm|fb\d|gridd|vfio|hung|lockup|oom|mce|"
    r"hardware|linux version"
)
_INFO = re.compile(r"^([A-Za-z0-9_.]+?)-([^-]+)\.dist-info$")
_FRAMEWORKS = (
    "torch-*", "tensorflow-*", "tensorflow_cpu-*", "jax-*", "jaxlib-*", "jax_*", "cupy*", "nvidia_cuda_runtime*",
    "nvidia_cudnn*", "nvidia_cuda_nvcc*", "nvidia_cuda_nvrtc*", "nvidia_nvvm*",
)  # fmt: skip


def collect(host: LiveHost, facts: Dict[str, Any], environment: Dict[str, Any]) -> Dict[str, Any]:
    """Return the symptoms of a host, given its facts (plain data) and the environment of its programs."""
    seen = {name: environment[name] for name in ENVIRONMENT if environment.get(name) is not None}
    # A simulated host would show the kernel log and devices of the machine around it.
    own = not facts["simulated"]
    log, refused = _kernel_log(host) if own else (None, False)
    return {
        "live": bool(host.live),
        "root": bool(host.observe("root", lambda: os.geteuid() == 0)),
        "environment": {name: mask(value) for name, value in seen.items()},
        "kernel_log": mask(log) if log else None,
        "kernel_log_refused": refused,
        "devices": _devices(host) if own else None,
        "builds": _builds(host, facts),
        "loader_cache": host.exists(libraries.LOADER_CACHE),
        "libraries": libraries.loadable(host, facts["arch"], seen.get("LD_LIBRARY_PATH", "")),
        "environments": _environments(host, facts, seen),
        "cdi": containers.described(host),
        "mig_instances": _mig_instances(host, facts),
        "licence": _licence(host, facts),
        "recovery": smi.recovery_asked(host, facts["smi"]["path"] if facts["smi"] and facts["smi"]["ok"] else None),
        "resets": smi.resets(host),
    }


def surroundings(host: LiveHost) -> Dict[str, Any]:
    """Return the relevant environment variables of a host's programs: from /etc/environment and this process."""
    found = {}
    for line in (host.read("/etc/environment", keep=_asked_lines) or "").splitlines():
        name, _equals, value = line.partition("=")
        found[name] = value.strip("\"'")
    own = host.observe("environment", lambda: {name: os.environ[name] for name in ENVIRONMENT if name in os.environ})
    return dict(found, **(own or {}))


def _asked_lines(text: str) -> str:
    """Keep only the variables in `ENVIRONMENT`: others may hold secrets."""
    lines = (line.strip() for line in text.splitlines())
    bare = (line[len("export ") :].strip() if line.startswith("export ") else line for line in lines)
    return "".join(line + "\n" for line in bare if line.partition("=")[0] in ENVIRONMENT)


def _kernel_log(host: LiveHost) -> Tuple[Any, ...]:
    """Return the kernel's messages since boot, and whether this user may not read them."""
    for label, argv in _LOG_COMMANDS:
        told = host.run(label, argv, 5)
        if told["rc"] == 0 and told["out"].strip():
            return _shortened(told["out"]), False
    for path in _LOG_FILES:
        text = host.read(path)
        if text:
            return _shortened(text[max(text.rfind("Linux version "), 0) :]), False
    return None, bool(host.live)


def _shortened(text: str) -> str:
    if len(text) <= _LOG_LIMIT:
        return text
    kept = "".join(line for line in text.splitlines(True) if _TELLING.search(line))
    half = _LOG_LIMIT // 2
    return kept if len(kept) <= _LOG_LIMIT else kept[:half] + "\n" + kept[-half:]


def _devices(host: LiveHost) -> Dict[str, Any]:
    """Return the GPU device files, with their modes and whether this user can open them."""
    found = {}
    for name in ["dxg", *host.names("/dev", "nvidia*")]:
        path = "/dev/" + name
        if host.exists(path):
            found[path] = host.observe("device:" + path, lambda path=path: _openable(path)) or {
                "open": None,
                "mode": None,
            }
    return found


def _openable(path: str) -> Any:
    try:
        mode = f"{os.stat(path).st_mode & 0o777:o}"
    except OSError:
        mode = None
    return {"open": os.access(path, os.R_OK | os.W_OK), "mode": mode}


def _builds(host: LiveHost, facts: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    running, versions = facts["kernel"]["running"], []
    for entry in facts["dkms"]:
        if entry["module"].startswith("nvidia") and (entry["module"], entry["version"]) not in versions:
            versions.append((entry["module"], entry["version"]))
    for module, version in versions:
        for place in ("build", "{}/{}/log".format(running, facts["arch"])):
            path = f"/var/lib/dkms/{module}/{version}/{place}/make.log"
            text = host.read(path)
            if text:
                cut = (
                    text if len(text) <= _BUILD_LIMIT else text[: _BUILD_LIMIT // 2] + "\n" + text[-_BUILD_LIMIT // 2 :]
                )
                found.append({"path": path, "version": version, "text": mask(cut)})
    return found


def _environments(host: LiveHost, facts: Dict[str, Any], environment: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return Python environments and their frameworks: the active one first, then those in the facts."""
    found, seen = [], set()
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(name, "").rstrip("/")
        if prefix and prefix not in seen:
            seen.add(prefix)
            found.append({"path": prefix, "packages": _packages(host, prefix)})
    for python in facts["pythons"]:
        prefix = python["path"].rsplit("/", 2)[0]
        if prefix not in seen:
            seen.add(prefix)
            found.append({"path": python["path"], "packages": dict(python["packages"], **_packages(host, prefix))})
    return found


def _packages(host: LiveHost, prefix: str) -> Dict[str, Any]:
    folders = []
    for name in host.names(prefix + "/lib", "python3*"):
        folders += [f"{prefix}/lib/{name}/site-packages", f"{prefix}/lib/{name}/dist-packages"]
    if prefix == "/usr":
        folders += [f"/usr/local/lib/{name}/dist-packages" for name in host.names("/usr/local/lib", "python3*")]
    found: Dict[str, str] = {}
    for folder in folders:
        for pattern in _FRAMEWORKS:
            for name in host.names(folder, pattern + ".dist-info"):
                match = _INFO.fullmatch(name)
                if match:
                    found.setdefault(match.group(1).replace("_", "-").lower(), match.group(2))
    return found


def _mig_instances(host: LiveHost, facts: Dict[str, Any]) -> Any:
    """Return whether GPUs in MIG mode have instances; None without MIG or without an answer."""
    if facts["smi"] is None or not any(gpu["mig"] == "Enabled" for gpu in facts["gpus"]):
        return None
    told = host.run("nvidia-smi-list", [facts["smi"]["path"], "-L"], 10)
    return "MIG " in told["out"].replace("MIG-", "") if told["rc"] == 0 else None


def _licence(host: LiveHost, facts: Dict[str, Any]) -> List[Any]:
    if facts["smi"] is None or not facts["smi"]["ok"] or not any(gpu["vgpu"] for gpu in facts["gpus"]):
        return []
    told = host.run("nvidia-smi-licence", [facts["smi"]["path"], "-q"], 10)
    return re.findall(r"License Status\s*: (.*\S)", told["out"])
