"""Kernels: the running one, the one that boots next, and each one's image, headers, initramfs and NVIDIA module."""

import platform
import re
from typing import Any, Dict, List, Optional, Tuple

from . import arguments, boot_images, modules
from .host import LiveHost

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
        "cmdline": arguments.of_gpus(cmdline),
        "cmdline_next": arguments.of_gpus(configured_cmdline(host)),
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
    return sorted((name for name in found if re.match(r"^\d+\.\d+", name)), key=version_key)


def version_key(text: str) -> List[Tuple[int, str]]:
    """Return a sort key that orders kernel releases as a boot menu does: numbers as numbers."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.findall(r"\d+|[a-z]+", text)]


def describe(host: LiveHost, release: str) -> Dict[str, Any]:
    """Return the facts of one kernel."""
    module = modules.find(host, release)
    return {
        "release": release,
        "image": boot_images.bootable(host, release),
        "headers": has_headers(host, release),
        "initramfs": boot_images.find(host, release),
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
    if default in ("", "saved") or (default == "0" and _has_entries(host)):
        default = _grub_variable(host, "saved_entry")
    for release in sorted(bootable, key=len, reverse=True):
        if re.search(r"(?<![\d.])" + re.escape(release) + r"(?![\w.])", once or default):
            return release, "the boot loader's {} names it".format("next_entry" if once else "default")
    return bootable[-1], "newest kernel image in /boot"


def _has_entries(host: LiveHost) -> bool:
    return any(host.names(root + "/loader/entries", "*.conf") for root in boot_images.ROOTS)


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


def configured_cmdline(host: LiveHost) -> str:
    """Return the kernel arguments that the next boot gets, as configured."""
    texts = [host.read("/etc/kernel/cmdline", keep=_only_gpu_arguments) or ""]
    texts += _grub_settings(host, "GRUB_CMDLINE_LINUX(?:_DEFAULT)?")
    for folder in (root + "/loader/entries" for root in boot_images.ROOTS):
        for name in host.names(folder, "*.conf", "kernel.cmdline_next"):
            texts += re.findall(r"^options\s+(.*)$", boot_images.text_of(host, f"{folder}/{name}"), re.MULTILINE)
    return " ".join(texts)


def _only_gpu_arguments(text: str) -> str:
    return " ".join(arguments.of_gpus(text))


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
        text = host.read(path.format(release), keep=_compiler_line)
        if text:
            return _compiler(text.partition("=")[2])
    return _compiler(host.read("/proc/version") or "")


def _compiler_line(text: str) -> str:
    match = re.search(r"^CONFIG_CC_VERSION_TEXT=.*$", text, re.MULTILINE)
    return match.group(0) if match else ""


def _compiler(version: str) -> Optional[str]:
    match = re.search(r"gcc(?:-(\d+))?\s*(?:version\s+|\([^)]*\)+\s*)?(\d+)?", version)
    major = (match.group(1) or match.group(2)) if match else None
    return "gcc-" + major if major else None
