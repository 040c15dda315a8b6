"""Kernels: the running one, the one that boots next, and each one's image, headers, initramfs and NVIDIA module.

An initramfs is in /boot, in the folder of a boot entry (systemd-boot, kernel-install), or inside a unified kernel
image. The file that a boot loader entry names takes precedence: others are only what it was copied from. With what else
decides whether a driver runs, kernels are the part of the facts that modules look at again and again.
"""

import platform
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import firmware, modules, sessions
from .host import LiveHost, lines_with

_RELEASE = re.compile(r"\d+\.\d+")
_COPY = re.compile(r"(?:\.(?:old|bak|orig|signed|dpkg-\w+|rpm\w+)|~)$")
"""How the name of a copy of a kernel's image ends, which is no kernel of its own."""
_MODULE_FOLDERS = ("/lib/modules", "/usr/lib/modules")


def collect(host: LiveHost) -> Dict[str, Any]:
    """Return the kernels and their command lines, from the boot loader's files and /lib/modules."""
    running = host.observe("kernel", platform.release) or host.value("/proc/sys/kernel/osrelease") or "unknown"
    cmdline = host.read("/proc/cmdline", "kernel.cmdline", keep=_only_gpu_arguments) or ""
    installed = [describe(host, release) for release in releases(host)]
    following, basis = next_to_boot(host, running, installed)
    return {
        "running": running,
        "next": following,
        "next_basis": basis,
        "cmdline": gpu_arguments(cmdline),
        "cmdline_next": gpu_arguments(_configured_cmdline(host, following)),
        "compiler": compiler(host, following),
        "installed": installed,
    }


def releases(host: LiveHost) -> List[str]:
    """Return the kernels that have a module folder or an image in /boot, oldest first."""
    found = set()
    for folder in _MODULE_FOLDERS:
        found.update(host.names(folder))
    for pattern in ("vmlinuz-*", "vmlinux-*"):
        found.update(name.split("-", 1)[1] for name in host.names("/boot", pattern))
    return sorted((name for name in found if _RELEASE.match(name) and not _COPY.search(name)), key=version_key)


def version_key(text: str) -> List[Tuple[int, str]]:
    """Return a sort key that orders kernel releases as a boot menu does: numbers as numbers."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.findall(r"\d+|[a-z]+", text)]


def describe(host: LiveHost, release: str) -> Dict[str, Any]:
    module = modules.find(host, release)
    return {
        "release": release,
        "image": bootable(host, release),
        "headers": has_headers(host, release),
        "initramfs": initramfs_of(host, release),
        "nvidia": module,
        "nouveau": modules.carries(host, release, "nouveau"),
    }


def has_headers(host: LiveHost, release: str) -> bool:
    """Return whether modules can be built for the kernel: its build tree has a Makefile."""
    return any(
        host.exists(path.format(release) + "/Makefile")
        for path in (
            "/lib/modules/{}/build",
            "/usr/lib/modules/{}/build",
            "/usr/src/linux-headers-{}",
            "/usr/src/kernels/{}",
        )
    )


def next_to_boot(host: LiveHost, running: str, installed: List[Dict[str, Any]]) -> Tuple[str, str]:
    """Return the kernel that boots next and the reason, as far as the boot loader's settings say."""
    bootable = [kernel["release"] for kernel in installed if kernel["image"]]
    if not bootable:
        return running, "no kernel image in /boot: the machine is booted from outside"
    once, default = _grub_variable(host, "next_entry"), _grub_default(host)
    if default in ("", "saved") or (
        default == "0" and any(host.names(root + "/loader/entries", "*.conf") for root in ROOTS)
    ):
        default = _grub_variable(host, "saved_entry")
    for release in sorted(bootable, key=len, reverse=True):
        if re.search(r"(?<![\d.])" + re.escape(release) + r"(?![\w.])", once or default):
            return release, "the boot loader's {} names it".format("next_entry" if once else "default")
    return bootable[-1], "newest kernel image in /boot"


def _grub_variable(host: LiveHost, name: str) -> str:
    """Return a variable of GRUB's environment; `next_entry` takes precedence over any default, for one boot."""
    for path in ("/boot/grub2/grubenv", "/boot/grub/grubenv"):
        match = re.search(rf"^{name}=(.+)$", host.read(path, "kernel.next") or "", re.MULTILINE)
        if match:
            return match.group(1).strip()
    return ""


def _grub_settings(host: LiveHost, name: str) -> List[str]:
    """Return the values of a setting in GRUB's files, in the order in which GRUB reads them: the last one counts."""
    paths = ["/etc/default/grub"]
    paths += ["/etc/default/grub.d/" + found for found in host.names("/etc/default/grub.d", "*.cfg")]
    texts = [host.read(path, keep=_grub_lines) or "" for path in paths]
    return [value for text in texts for value in re.findall(rf"^\s*{name}=(.*)$", text, re.MULTILINE)]


def _grub_default(host: LiveHost) -> str:
    value = (_grub_settings(host, "GRUB_DEFAULT") or [""])[-1]
    return re.sub(r"\s+#.*$", "", value).strip().strip("\"'")


def _configured_cmdline(host: LiveHost, following: str) -> str:
    """Return the arguments that the kernel which boots next gets, as configured."""
    texts = [host.read("/etc/kernel/cmdline", keep=_only_gpu_arguments) or ""]
    texts += _grub_settings(host, "GRUB_CMDLINE_LINUX(?:_DEFAULT)?")
    for entry in entries(host, following):
        texts += re.findall(r"^options\s+(.*)$", entry_text(host, entry.path), re.MULTILINE)
    return " ".join(texts)


def _only_gpu_arguments(text: str) -> str:
    return " ".join(gpu_arguments(text))


def _grub_lines(text: str) -> str:
    """Keep GRUB's default entry and the arguments that affect a GPU."""
    kept = []
    for line in text.splitlines():
        match = re.match(r"\s*(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=", line)
        if match:
            kept.append(f'{match.group(1)}="{_only_gpu_arguments(line)}"')
        elif re.match(r"\s*GRUB_DEFAULT=", line):
            kept.append(line)
    return "".join(line + "\n" for line in kept)


_CONFIGURATIONS = ("/boot/config-{}", "/lib/modules/{}/config", "/lib/modules/{}/build/include/config/auto.conf")


def compiler(host: LiveHost, release: str) -> Optional[str]:
    """Return the compiler that built a kernel, such as gcc-12: from its configuration, else the running kernel's."""
    for path in _CONFIGURATIONS:
        text = host.read(path.format(release), keep=lines_with("^CONFIG_CC_VERSION_TEXT="))
        if text:
            return _compiler(text.partition("=")[2])
    return _compiler(host.read("/proc/version") or "")


def _compiler(version: str) -> Optional[str]:
    match = re.search(r"gcc(?:-(\d+))?\s*(?:version\s+|\([^)]*\)+\s*)?(\d+)?", version)
    major = (match.group(1) or match.group(2)) if match else None
    return "gcc-" + major if major else None


ROOTS = ("/efi", "/boot", "/boot/efi")
"""Where kernel-install looks for the boot loader's partition."""
NAMED = ("/boot/initrd.img-{}", "/boot/initramfs-{}.img", "/boot/initrd-{}")
IMAGES = ("/boot/vmlinuz-{}", "/boot/vmlinux-{}", "/boot/Image-{}", "/lib/modules/{}/vmlinuz")
_MICROCODE = re.compile(r"(?:^|/)(?:intel|amd)[-_]ucode[^/]*$|microcode", re.IGNORECASE)


class Entry(NamedTuple):
    """A boot loader entry: its file, and the host's paths of its kernel and initramfs."""

    path: str
    kernel: str
    image: Optional[str]


def entries(host: LiveHost, release: str) -> List[Entry]:
    found = []
    for root in ROOTS:
        folder = root + "/loader/entries"
        for name in _names_in(host, folder, "*.conf"):
            path = f"{folder}/{name}"
            told = _fields(entry_text(host, path))
            linux = (told.get("linux") or told.get("efi") or [""])[0]
            if release in (told.get("version") or []) or _names(linux, release):
                images = [_on_host(host, root, item) for line in told.get("initrd", []) for item in line.split()]
                image = next((item for item in reversed(images) if item and not _MICROCODE.search(item)), None)
                found.append(Entry(path, _on_host(host, root, linux) or linux, image))
    return found


def entry_text(host: LiveHost, path: str) -> str:
    """Return the lines of an entry that name files, and those of its arguments that affect a GPU."""
    return host.read(path, "kernel.initramfs", keep=_kept) or ""


def _kept(text: str) -> str:
    lines = []
    for line in text.splitlines():
        key, _space, value = line.strip().partition(" ")
        if key in ("version", "linux", "efi", "initrd"):
            lines.append(line)
        elif key == "options":
            lines.append("options " + " ".join(gpu_arguments(value)))
    return "".join(line + "\n" for line in lines)


def initramfs_of(host: LiveHost, release: str) -> Optional[str]:
    """Return the path of the initramfs that boots with a kernel, None when there is none."""
    named = [entry.image for entry in entries(host, release) if entry.image]
    named += unified(host, release)
    named += [path.format(release) for path in NAMED if host.exists(path.format(release))]
    return named[0] if named else next(_in_folders(host, release), None)


def _in_folders(host: LiveHost, release: str) -> Iterator[str]:
    """Yield the initramfs files in the folders that kernel-install makes for a kernel."""
    for root in ROOTS:
        for token in host.names(root):
            folder = f"{root}/{token}/{release}"
            for name in host.names(folder, "init*"):
                if not _MICROCODE.search(name):
                    yield f"{folder}/{name}"


def unified(host: LiveHost, release: str) -> List[str]:
    """Return the unified kernel images of a kernel: kernel, initramfs and arguments in one file."""
    return [
        f"{root}/EFI/Linux/{name}"
        for root in ROOTS
        for name in _names_in(host, root + "/EFI/Linux", "*.efi")
        if _names(name, release)
    ]


def bootable(host: LiveHost, release: str) -> bool:
    """Return whether a kernel's image is in a place from which a boot loader of this host loads it."""
    named = [path.format(release) for path in IMAGES] + [entry.kernel for entry in entries(host, release)]
    return any(map(host.exists, named)) or bool(unified(host, release))


def _names_in(host: LiveHost, folder: str, pattern: str) -> List[str]:
    """Return names in a folder; plain users cannot see into the boot partition, and that is not reported."""
    return host.names(folder, pattern, "kernel.initramfs") if host.exists(folder) else []


def _names(text: str, release: str) -> bool:
    """Return whether a path names this kernel, not one whose release merely starts or ends like it."""
    return bool(re.search(r"(?<![\w.])" + re.escape(release) + r"(?:\+\d+(?:-\d+)?)?(?=$|/|\.efi$|\.img$)", text))


def _fields(text: str) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for line in text.splitlines():
        key, _space, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            found.setdefault(key, []).append(value.strip())
    return found


def _on_host(host: LiveHost, root: str, path: str) -> Optional[str]:
    """Return the host's path for a path in an entry, which is relative to the partition mounted at `root`."""
    for place in (root + path, path):
        if path and host.exists(place):
            return place
    return None


_ARGUMENT = re.compile(
    r"(?:(?:rd\.driver\.blacklist|rdblacklist|modprobe\.blacklist|module_blacklist)=[\w,-]+"
    r"|(?:nouveau|nvidia|nvidia[-_]drm|nova_core)\.\w+=\w+|nomodeset|(?:intel_|amd_)?iommu(?:\.\w+)?=[\w,]+)"
)


def gpu_arguments(cmdline: str) -> List[str]:
    """Return the arguments that affect a GPU, in order, without duplicates."""
    return list(dict.fromkeys(_ARGUMENT.findall(cmdline)))


def driver_state(host: LiveHost, simulated: Optional[LiveHost] = None) -> Dict[str, Any]:
    """Return the part of the facts that decides whether a driver runs, can be loaded, or needs a reboot first."""
    kernel = collect(host)
    if simulated is not None:
        _stand_in_kernel(kernel, simulated)
    loaded = modules.loaded(host)
    firm = firmware.collect(simulated or host, host)
    return {
        "simulated": simulated is not None,
        "kernel": kernel,
        "modules": loaded,
        "module_users": modules.users(host),
        "driver": {"loaded": modules.loaded_nvidia(host)},
        "nouveau": {"loaded": modules.has_nouveau(loaded)},
        "secure_boot": firm.pop("secure_boot"),
        "firmware": firm,
        "processes": sessions.gpu_processes(host),
    }


def _stand_in_kernel(kernel: Dict[str, Any], simulated: LiveHost) -> None:
    """Use a kernel from the simulated host's own root, else the captured one; never the surrounding machine's."""
    own = [item["release"] for item in kernel["installed"]]
    captured = collect(simulated)
    if not any(item["image"] for item in kernel["installed"]):
        kernel["next"] = own[-1] if own else captured["next"]
        kernel["next_basis"] = "newest headers on the host" if own else "the captured machine's kernel"
    kernel["next_basis"] = "simulated: " + kernel["next_basis"]
    kernel["running"] = captured["running"] if captured["running"] in own else kernel["next"]
    kernel["compiler"] = compiler(simulated, kernel["next"]) if not own else kernel["compiler"]
