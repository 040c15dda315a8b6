"""The operating system, its boot, its disks and its Python interpreters."""

import hashlib
import json
import os
import platform
import re
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import commands, environment
from .host import LiveHost, lines_with

_FAMILIES = (
    ("debian", ("debian", "ubuntu")),
    ("redhat", ("rhel", "fedora", "centos", "rocky", "almalinux", "amzn", "ol", "azurelinux")),
    ("suse", ("sles", "suse", "opensuse")),
)


def os_release(host: LiveHost) -> Dict[str, Any]:
    """Return the fields of /etc/os-release, the package family and the glibc version."""
    text = host.read("/etc/os-release") or host.read("/usr/lib/os-release") or ""
    lines = re.findall(r"^([A-Z_]+)=([\"']?)(.*?)\2\s*$", text, re.MULTILINE)
    fields = {name: value for name, _quote, value in lines}
    name = fields.get("ID", "unknown")
    like = fields.get("ID_LIKE", "").split()
    family = "unknown"
    for candidate, members in _FAMILIES:
        if any(word.startswith(members) if candidate == "suse" else word in members for word in [name, *like]):
            family = candidate
            break
    return {
        "id": name,
        "version_id": fields.get("VERSION_ID", ""),
        "like": like,
        "codename": fields.get("VERSION_CODENAME") or None,
        "name": fields.get("PRETTY_NAME") or name,
        "family": family,
        "glibc": host.observe("glibc", _glibc),
    }


def _glibc() -> Optional[str]:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
    except (IndexError, ValueError, OSError):
        return None


def machine(host: LiveHost) -> str:
    """Return the processor architecture as `uname -m` names it."""
    return host.observe("machine", platform.machine) or "unknown"


def boot(host: LiveHost) -> Dict[str, Any]:
    """Return the boot's id and time, and the machine's identity, which does not depend on its host name."""
    uptime = host.observe("boot_time", lambda: _boot_time(host))
    boot_id = host.value("/proc/sys/kernel/random/boot_id")
    return {"id": boot_id, "time": uptime, "machine": _machine_id(host)}


def _machine_id(host: LiveHost) -> Optional[str]:
    """Return a digest of the machine id, which is never disclosed itself; clones of one image may share it."""
    known = host.value("/etc/machine-id")
    if not known or known == "uninitialized":
        return None
    return hashlib.sha256(b"gpusetup:" + known.encode("utf-8")).hexdigest()[:32]


def _boot_time(host: LiveHost) -> Optional[int]:
    match = re.search(r"^btime (\d+)", host.read("/proc/stat", keep=lines_with(r"^btime ")) or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def disks(host: LiveHost) -> Dict[str, Any]:
    """Return total and free bytes of each place that an install writes to."""
    answer = host.observe("disks", _disks) or {}
    return {place: answer[place] for place in _PLACES if place in answer}


_PLACES = ("/", "/boot", "/usr", "/var", "/opt", "/tmp")  # noqa: S108 - only its free space is read


def _disks() -> Dict[str, Any]:
    places: Dict[str, Any] = {}
    devices: Dict[int, str] = {}
    for path in _PLACES:
        try:
            space, device = os.statvfs(path), os.stat(path).st_dev
        except OSError:
            continue
        places[path] = {
            "total": space.f_blocks * space.f_frsize,
            "free": space.f_bavail * space.f_frsize,
            "writable": not space.f_flag & os.ST_RDONLY,
            "same_as": devices.get(device),
        }
        devices.setdefault(device, path)
    return places


_FRAMEWORKS = re.compile(
    r"^(torch|tensorflow|jax|jaxlib|cupy(?:_cuda\d+x)?|cuda_toolkit|nvidia_(?:cudnn|nccl)_cu\d+|"
    r"nvidia_cuda_(?:runtime|nvrtc|nvcc|crt)(?:_cu\d+)?|nvidia_(?:nvjitlink|nvvm)|cuda_bindings)-([^-]+)\.dist-info$"
)
_FRAMEWORK_FILES = tuple(
    name + ".dist-info"
    for name in ("torch-*", "tensorflow-*", "jax*", "cupy*", "nvidia_*", "cuda_toolkit-*", "cuda_bindings-*")
)


def pythons(host: LiveHost, named: Sequence[str] = ()) -> List[Dict[str, Any]]:
    """Return the interpreters in the usual places and the named ones, each with its GPU frameworks."""
    found: Dict[Tuple[str, str], str] = {}
    for folder in ("/usr/bin", "/usr/local/bin", "/opt/gpusetup/bin"):
        for name in host.names(folder, "python3*"):
            if not re.fullmatch(r"python3(\.\d+)?", name):
                continue
            path = folder + "/" + name
            version = _python_version(host, path)
            if version:
                found.setdefault((folder, version), path)
    # Root starts a named interpreter only if nobody else can change it: otherwise they could become root.
    theirs = {path: _changeable(host, path) for path in named if host.exists(path)}
    named = [path for path in named if not theirs.get(path)]
    for path in named:
        known = path in found.values() or not host.exists(path)
        version = None if known else _python_version(host, path)
        if version:
            found[os.path.dirname(path), version] = path
    told = [_python(host, folder, version, path) for (folder, version), path in sorted(found.items())]
    for python in told:
        if python["path"] in named:
            python["packages"].update(_own_answer(host, python["path"]))
    told = [python for python in told if not theirs.get(python["path"])]
    refused = [(path, reason) for path, reason in sorted(theirs.items()) if reason]
    return told + [
        {"path": path, "version": "", "ensurepip": False, "packages": {}, "changeable": reason}
        for path, reason in refused
    ]


def _changeable(host: LiveHost, path: str) -> Optional[str]:
    def look() -> str:
        return environment.changeable(host.inside(path)) if os.geteuid() == 0 else ""

    found: Optional[str] = host.observe("python-changeable:" + path, look)
    return found


_LIST = (
    "import importlib.metadata as m, json; "
    "print(json.dumps([[d.metadata['Name'] or '', d.version] for d in m.distributions()]))"
)


def _own_answer(host: LiveHost, path: str) -> Dict[str, Any]:
    """Return the frameworks that an interpreter itself reports, including those from .pth files and parent folders."""
    answer = host.observe("python-packages:" + path, lambda: _frameworks(commands.run([path, "-c", _LIST], 20)))
    return answer or {}


def _frameworks(told: Dict[str, Any]) -> Dict[str, Any]:
    try:
        listed = json.loads(told["out"]) if told["rc"] == 0 else []
    except ValueError:
        return {}
    found = {}
    for name, version in reversed(listed):
        if _FRAMEWORKS.fullmatch("{}-{}.dist-info".format(re.sub(r"[-_.]+", "_", name).lower(), version)):
            found[re.sub(r"[-_.]+", "-", name).lower()] = version
    return found


def _python_version(host: LiveHost, path: str) -> Optional[str]:
    """python3.11 -> 3.11, through links; only if no name shows the version is the interpreter started."""
    for _hop in range(5):
        match = re.search(r"python(3\.\d+)$", path)
        if match:
            return match.group(1)
        target = host.link(path)
        if not target:
            break
        path = target if target.startswith("/") else path.rsplit("/", 1)[0] + "/" + target
    answer = host.run("python-version:" + path, [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], 5)
    return answer["out"].strip() if answer["rc"] == 0 else None


def _python(host: LiveHost, folder: str, version: str, path: str) -> Dict[str, Any]:
    prefix = folder[: -len("/bin")]
    packages: Dict[str, str] = {}
    libraries = [prefix + "/lib/python" + version + "/site-packages"]
    if prefix == "/usr":
        libraries += ["/usr/lib/python3/dist-packages", "/usr/local/lib/python" + version + "/dist-packages"]
    for library in libraries:
        for pattern in _FRAMEWORK_FILES:
            for name in host.names(library, pattern):
                match = _FRAMEWORKS.fullmatch(name)
                if match:
                    packages.setdefault(match.group(1).replace("_", "-"), match.group(2))
    return {
        "path": path,
        "version": version,
        "ensurepip": host.exists(prefix + "/lib/python" + version + "/ensurepip"),
        "packages": packages,
    }


def running_interpreter(host: LiveHost) -> Optional[Dict[str, Any]]:
    """Return the interpreter that runs this probe (the one that Ansible chose)."""
    told: Optional[Dict[str, Any]] = host.observe(
        "interpreter", lambda: {"path": sys.executable, "version": platform.python_version()}
    )
    return told
