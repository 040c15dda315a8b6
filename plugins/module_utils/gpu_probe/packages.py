"""The packages of a GPU stack (versions, origins, holds, a sane database), package sources without credentials, and who
holds the package managers' locks, of which the probe takes none.
"""

import fcntl
import fnmatch
import os
import re
import struct
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from .commands import mask
from .host import LiveHost, lines_with

RELEVANT = re.compile(
    r"^(?:nvidia|libnvidia|libcuda|cuda|libcudnn|cudnn|libnccl|nccl|kmod-nvidia|akmod-nvidia|dnf-plugin-nvidia|libnvsdm|nvlsm|"
    r"datacenter-gpu-manager|infiniband-diags|xserver-xorg-video-nvidia|xorg-x11-drv-nvidia|glx-alternative-nvidia|firmware-nvidia|"
    r"linux-(?:image|headers|modules|objects|signatures)-|kernel(?:$|-(?:uek|rt|64k|default|azure|hwe|drivers-gpu|core|devel|headers|modules))|kernel\d|"
    r"libgl1-nvidia|libegl|libgles|"
    r"dkms$|gcc(?:-\d+)?$|make$|dracut$|initramfs-tools(?:-core)?$|mokutil$|shim-signed$|grub-efi|docker|containerd|podman|cri-o$|"
    r"unattended-upgrades$|dnf-automatic$|ubuntu-drivers-common$|python3(?:\.?\d+)?(?:-venv|-apt|-pip)?$|python3-dnf|epel-release$"
    r"|zstd$|prometheus-node-exporter$|node-exporter$|golang-github-prometheus-node[-_]exporter$)"
)
# Packages whose version is the driver's version.
_DRIVER_PACKAGE = re.compile(
    r"^(?:nvidia-(?:driver|kernel|open-kernel|dkms|headless|utils|smi|open|tesla|alternative|legacy)|libcuda1|libnvidia-(?:compute|ml)|"
    r"kmod-nvidia|akmod-nvidia|cuda-drivers|nvidia-x11-drv|xorg-x11-drv-nvidia|linux-modules-nvidia|nvidia-linux-grid)"
)
_NOT_A_DRIVER = re.compile(
    r"^nvidia-(?:driver-(?:assistant|local-repo|pinning)|kernel-common|alternative|open-kernel-common|kernel-support|legacy-check)|-source|-container"
)
_DPKG = {"x86_64": "amd64", "aarch64": "arm64"}
_SANE = ("installed", "config-files", "not-installed")


def collect(host: LiveHost, family: str, also: Any = ()) -> Dict[str, Any]:
    """Return {"manager", "installed": {name: {...}}, "held", "problems"}; `also` names further packages to include."""
    if host.exists("/var/lib/dpkg/status") and family not in ("redhat", "suse"):
        return _dpkg(host, also)
    if host.exists("/usr/bin/rpm") or host.exists("/var/lib/rpm") or host.exists("/usr/lib/sysimage/rpm"):
        return _rpm(host, family, also)
    host.note("packages", "neither dpkg nor rpm keeps packages here")
    return {"manager": None, "installed": {}, "held": [], "problems": []}


def _dpkg(host: LiveHost, also: Any) -> Dict[str, Any]:
    native = None
    installed, held, problems = {}, [], []
    for fields in _stanzas(
        host.read("/var/lib/dpkg/status", "packages", keep=lambda text: reduce_status(text, also)) or ""
    ):
        want, flag, state = (fields.get("Status", "") + "   ").split(" ")[:3]
        name = fields.get("Package", "")
        if state.startswith("triggers"):  # it works, and waits for work on files of others
            state = "installed"
        if flag == "reinstreq" or state not in _SANE:
            problems.append("{} is {}".format(name, "broken and must be reinstalled" if flag == "reinstreq" else state))
        if state == "not-installed" or not (RELEVANT.match(name) or name in also):
            continue
        arch = fields.get("Architecture", "")
        native = native or host.observe("dpkg-architecture", lambda: _DPKG.get(os.uname()[4]))
        key = name if arch in ("all", native) or native is None else name + ":" + arch
        if want == "hold":
            held.append(key)
        maker = fields.get("Maintainer", "") + " " + fields.get("Origin", "")
        installed[key] = {"version": fields.get("Version", ""), "state": state, "origin": origin(maker)}
    pending = [name for name in host.names("/var/lib/dpkg/updates") if name.isdigit()]
    if pending:
        problems.append("dpkg was interrupted: run dpkg --configure -a")
    return {"manager": "apt", "installed": installed, "held": sorted(held), "problems": problems}


def reduce_status(text: str, also: Any = ()) -> str:
    """Keep the relevant packages of dpkg's status and those in a bad state, with only the fields that are used."""
    kept = []
    for stanza in re.split(r"\n\n+", text):
        match = re.match(r"Package: (\S+)\nStatus: \S+ (\S+) (\S+)", stanza)
        if match and not (
            RELEVANT.match(match.group(1))
            or match.group(1) in also
            or match.group(2) != "ok"
            or match.group(3) not in _SANE
        ):
            continue
        lines = re.findall(r"^(?:Package|Status|Architecture|Version|Maintainer|Origin): .*$", stanza, re.MULTILINE)
        if lines:
            kept.append(
                "\n".join(
                    re.sub(r"^(Maintainer: ).*?<?[^\s<@]*@([^>\s]+)>?.*$", r"\1maintainer@\2", line) for line in lines
                )
            )
    return "\n\n".join(kept) + "\n"


def _stanzas(text: str) -> Iterator[Any]:
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        if fields:
            yield fields


def origin(maker: str) -> str:
    """Return a package's origin by its maintainer or vendor."""
    text = maker.lower()
    if "nvidia.com" in text or text.strip() in ("nvidia", "nvidia corporation"):
        return "nvidia"
    if "rpm fusion" in text or "rpmfusion" in text:
        return "rpmfusion"
    if re.search(r"negativo17|elrepo|system76|pop!_os|launchpad", text):
        return "other"
    return "distribution"


_FORMAT = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{VENDOR} %{PACKAGER}\\n"


def _rpm(host: LiveHost, family: str, also: Any) -> Dict[str, Any]:
    answer = host.run("rpm", ["rpm", "-qa", "--qf", _FORMAT], 20)
    problems = [] if answer["rc"] == 0 else ["rpm -qa: " + (answer.get("why") or answer["err"].strip() or "failed")]
    native = host.observe("machine-rpm", lambda: os.uname()[4])
    found: Dict[str, List[Dict[str, Any]]] = {}
    names = set()
    for line in answer["out"].splitlines():
        pieces = line.split("\t")
        names.add(pieces[0])
        if len(pieces) != 4 or not (RELEVANT.match(pieces[0]) or pieces[0] in also):
            continue
        name, version, arch, maker = pieces
        key = name if arch in ("noarch", native) else name + ":" + arch
        version = version[2:] if version.startswith("0:") else version
        found.setdefault(key, []).append(
            {"version": version, "state": "installed", "origin": origin(maker.replace("(none)", ""))}
        )
    installed = {}
    for key, several in found.items():
        for one in several:  # kernels are there more than once
            installed[key if len(several) == 1 else "{}-{}".format(key, one["version"])] = one
    if family == "suse":
        return {"manager": "zypper", "installed": installed, "held": zypper_locks(host, names), "problems": problems}
    return {"manager": "dnf", "installed": installed, "held": versionlocks(host), "problems": problems}


def is_driver(name: str) -> bool:
    """Return whether a package contains a driver, or a part of one with the driver's version."""
    return bool(_DRIVER_PACKAGE.match(name)) and not _NOT_A_DRIVER.search(name)


TOML = "/etc/dnf/versionlock.toml"


def versionlocks(host: LiveHost) -> List[str]:
    """Return the names that dnf's versionlock holds: those of dnf 4's list, and of dnf 5's TOML.

    Entries that only exclude versions (`versionlock exclude`: `!` in dnf 4, `!=` in dnf 5) hold nothing.
    """
    locks = [name for _entry, name, comparators in versionlock_tables(host) if set(comparators) != {"!="}]
    return sorted({*versionlock_entries(host).values(), *locks})


def versionlock_tables(host: LiveHost) -> List[Tuple[str, str, List[str]]]:
    """Return text, name and comparators of each entry in dnf 5's TOML."""
    found = []
    for entry in re.split(r"^(?=\[\[packages\]\])", host.read(TOML, "packages.held") or "", flags=re.MULTILINE)[1:]:
        name = re.search(r'^name\s*=\s*["\']([^"\']+)["\']', entry, re.MULTILINE)
        comparators = re.findall(r'^comparator\s*=\s*["\']([^"\']+)["\']', entry, re.MULTILINE)
        found += [(entry, name.group(1), comparators)] if name else []
    return found


def versionlock_entries(host: LiveHost) -> Dict[str, str]:
    """Return {name-epoch:version-release: name} of what dnf 4's list holds."""
    found = {}
    for path in ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list"):
        for line in map(str.strip, (host.read(path, "packages.held") or "").splitlines()):
            if line and not line.startswith(("#", "!")):
                found[line] = re.sub(r"^(.+?)-(?:\d+:)?[^-]+-[^-]+$", r"\1", line)
    return found


def zypper_locks(host: LiveHost, names: Iterable[str]) -> List[str]:
    """Return the names that zypper's locks hold: those that locks name, and those of `names` that match a pattern.

    Locks limited to a repository, and locks of patches or patterns, hold no package.
    """
    names, held = list(names), set()
    for stanza in re.split(r"\n\s*\n", host.read("/etc/zypp/locks", "packages.held") or ""):
        fields = dict(re.findall(r"^(\w+)\s*:\s*(.*?)\s*$", stanza, re.MULTILINE))
        wanted, how = fields.get("solvable_name"), fields.get("match_type", "substring")
        if not wanted or fields.get("type", "package") != "package" or "repo" in fields:
            continue
        if how in ("glob", "exact") and not re.search(r"[*?\[]", wanted):
            held.add(wanted)
        pattern = {"glob": fnmatch.translate(wanted), "regex": wanted}.get(how, re.escape(wanted))
        case = 0 if fields.get("case_sensitive") in ("on", "true") else re.IGNORECASE
        try:
            match = re.compile(pattern, case)
        except re.error:  # zypper's expressions are not Python's
            continue
        held.update(name for name in names if (match.search if how in ("regex", "substring") else match.match)(name))
    return sorted(held)


_UPGRADES = lines_with("nvidia|APT::Periodic::Unattended-Upgrade")


def automatic_upgrades(host: LiveHost) -> Dict[str, Any]:
    """Return whether the host upgrades itself, and whether NVIDIA packages are excluded from that."""
    text = ""
    for name in host.names("/etc/apt/apt.conf.d"):
        if "." in name and not name.endswith(".conf"):  # apt reads no others, such as .dpkg-old
            continue
        text += host.read("/etc/apt/apt.conf.d/" + name, "packages.automatic_upgrades", keep=_UPGRADES) or ""
    periodic = re.findall(r'^\s*APT::Periodic::Unattended-Upgrade\s+"([^"]*)"', text, re.MULTILINE)  # the last counts
    timers = host.names("/etc/systemd/system/timers.target.wants", "dnf*-automatic*.timer")
    unattended = periodic[-1:] not in ([], [""], ["0"]) and host.exists("/usr/bin/unattended-upgrade")
    return {
        "enabled": unattended or bool(timers),
        "excludes_nvidia": bool(re.search(r'^\s*"[^"]*nvidia[^"]*"\s*;', text, re.MULTILINE)),
    }


_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_NVIDIA = re.compile(r"nvidia|/cuda[-/]|libnvidia-container", re.IGNORECASE)
_OFF = ("0", "no", "false", "off", "without", "disable")
_ONE_LINE = re.compile(r"^(deb|deb-src)\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)$")


def sources(host: LiveHost) -> List[Dict[str, Any]]:
    """Return every enabled source as {"file", "uri", "suites", "components", "signed_by", "nvidia"}."""
    found = []
    parts = host.names("/etc/apt/sources.list.d", "*.list") + host.names("/etc/apt/sources.list.d", "*.sources")
    for path in ["/etc/apt/sources.list"] + ["/etc/apt/sources.list.d/" + name for name in sorted(parts)]:
        if path.endswith(".list"):
            found += _list_file(path, host.read(path, "packages.sources", keep=without_secrets) or "")
        elif path.endswith(".sources"):
            found += _deb822_file(path, host.read(path, "packages.sources", keep=without_secrets) or "")
    for path, identity, fields in _repositories(host):
        if fields.get("enabled", "1").lower() not in _OFF:
            uri = fields.get("baseurl") or fields.get("metalink") or fields.get("mirrorlist") or ""
            signed = None if fields.get("gpgcheck", "1").lower() in _OFF else fields.get("gpgkey")
            found.append(_source(path, uri.split()[0] if uri else "", [identity], [], signed))
    return found


def disabled_sources(host: LiveHost) -> List[str]:
    """Return the ids of the dnf and zypper repositories that are configured and switched off."""
    return [identity for _path, identity, fields in _repositories(host) if fields.get("enabled", "1").lower() in _OFF]


def without_secrets(text: str) -> str:
    """Return a sources file without comments, passwords and user names."""
    kept = []
    for line in text.splitlines():
        if line.lstrip().startswith("#") or re.match(r"\s*(username|password|proxy_password|sslclientkey)\s*=", line):
            continue
        kept.append(_CREDENTIALS.sub("", line))
    return "\n".join(kept) + "\n"


def _source(path: str, uri: str, suites: List[str], components: List[str], signed_by: Optional[str]) -> Dict[str, Any]:
    nvidia = bool(_NVIDIA.search(uri))
    return {
        "file": path,
        "uri": uri,
        "suites": suites,
        "components": components,
        "signed_by": signed_by,
        "nvidia": nvidia,
    }


def _list_file(path: str, text: str) -> List[Dict[str, Any]]:
    found = []
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match and match.group(1) == "deb":
            signed = re.search(r"signed-by=(\S+)", match.group(2) or "", re.IGNORECASE)
            components = match.group(5).split("#")[0].split()
            found.append(
                _source(path, match.group(3), [match.group(4)], components, signed.group(1) if signed else None)
            )
    return found


def _deb822_file(path: str, text: str) -> List[Dict[str, Any]]:
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields, last = {}, None
        for line in stanza.splitlines():
            match = re.match(r"^([A-Za-z-]+):\s*(.*)$", line)
            if match:
                last = match.group(1).lower()
                fields[last] = match.group(2).strip()
            elif last and line.startswith((" ", "\t")):
                fields[last] += " " + line.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in _OFF:
            continue
        signed = fields.get("signed-by")
        signed = "(embedded key)" if signed and "BEGIN PGP" in signed else signed
        suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
        found += [_source(path, uri, suites, components, signed) for uri in fields.get("uris", "").split()]
    return found


def _repositories(host: LiveHost) -> Iterator[Tuple[str, str, Dict[str, str]]]:
    """Yield file, id and fields of each dnf or zypper repository."""
    for folder in ("/etc/yum.repos.d/", "/etc/zypp/repos.d/"):
        for name in host.names(folder, "*.repo"):
            text = host.read(folder + name, "packages.sources", keep=without_secrets) or ""
            for match in re.finditer(r"^\[([^\]]+)\]\s*\n((?:(?!\[).*\n?)*)", text, re.MULTILINE):
                fields = re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", match.group(2), re.MULTILINE)
                yield folder + name, match.group(1), dict(fields)


_LOCK_FILES = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
)
_PID_FILES = (
    "/run/dnf.pid",
    "/run/yum.pid",
    "/run/zypp.pid",
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
    "/var/lib/rpm/rpmdb_lock.pid",
)
_FLOCK = "hhqqi4x"


def lock_holder(root: str = "/") -> Optional[Dict[str, Any]]:
    """Return the holder of the first held lock as {"file", "pid", "command"}, None when all are free."""
    looks = [(path, _of_lock) for path in _LOCK_FILES] + [(path, _of_pid_file) for path in _PID_FILES]
    for path, look in looks:
        pid = look(os.path.join(root, path.lstrip("/")))
        if pid is not None:
            return {"file": path, "pid": pid, "command": _command(pid)}
    return None


def _of_lock(path: str) -> Optional[int]:
    """Return the process that holds a lock file: by F_GETLK, or from /proc/locks where that needs root."""
    try:
        handle = os.open(path, os.O_RDWR)
    except PermissionError:
        return _listed(path)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _listed(path: str) -> Optional[int]:
    """Return the process that /proc/locks names for a file; stat needs no permission to open it."""
    try:
        there = os.stat(path)
        with open("/proc/locks", encoding="utf-8", errors="replace") as handle:
            lines = [line.split() for line in handle]
    except OSError:
        return None
    key = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    for pieces in lines:
        if len(pieces) >= 6 and "->" not in pieces and pieces[5] == key and pieces[4].isdigit():
            return int(pieces[4])
    return None


def _of_pid_file(path: str) -> Optional[int]:
    """Return the living process that a pid file names."""
    try:
        with open(path, encoding="utf-8") as handle:
            pid = int(handle.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if os.path.exists(f"/proc/{pid}") else None


def _command(pid: int) -> Optional[str]:
    """Return a process's command line with secrets masked: for a script, its name alone would be the interpreter's."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            words = handle.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as named:
            return mask(words)[:200] or named.read().strip()
    except OSError:
        return None
