"""An argument on the command line of kernels that kernel-install adds to the boot loader (systemd-boot, unified kernel
images): in /etc/kernel/cmdline for future kernels, and in the entries of the relevant ones.
"""

import re
from typing import Dict, List, Sequence, Tuple

from ..gpu_probe import initramfs, kernels
from ..gpu_probe.host import LiveHost
from . import boot_arguments, boot_image, files, process
from .ledger import Ledger
from .machine import Machine

CMDLINE, _VENDORS = "/etc/kernel/cmdline", "/usr/lib/kernel/cmdline"
_LOADER_INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_OF_ONE_BOOT = re.compile(r"^(?:BOOT_IMAGE|initrd|systemd\.machine_id)=")


def systemd_boot_runs() -> bool:
    """Return whether systemd-boot started this system, by what it told the firmware."""
    raw = LiveHost().read_bytes(_LOADER_INFO) or b""
    return raw[4:].decode("utf-16-le", "replace").startswith("systemd-boot")


class Entries(boot_arguments.Argument):
    """One argument in the boot entries of the relevant kernels; it is removed from those of all installed kernels."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        kernels: Tuple[Sequence[str], Sequence[str]],
        env: Dict[str, str],
        log: boot_image.Log = None,
    ) -> None:
        super().__init__(name)
        self.ledger = ledger
        self.counting, self.installed = ([kernel for kernel in some if _places(kernel)] for some in kernels)
        self.env = env
        self.log = log
        self.warnings: List[str] = []

    def usable(self) -> bool:
        """Return whether kernel-install can rebuild the entry of any of these kernels."""
        return any(boot_image.can_install(kernel, self.env) for kernel in self.counting + self.installed)

    def look(self) -> str:
        there = self.name in (files.read_text(CMDLINE) or "").split()
        if there and not self._stale("all"):
            return "all"
        return "some" if there or CMDLINE in self.ledger.state["files"] or self._stale("none") else "none"

    def make(self, wanted: str) -> None:
        """Change the file, and rebuild the entries that differ."""
        self._configure(wanted == "all")
        for kernel in self._stale(wanted):
            if boot_image.can_install(kernel, self.env):
                boot_image.install(kernel, _places(kernel)[0], self.env, self.log)
        for kernel in self._stale(wanted):
            place = ", ".join(_places(kernel))
            self.warnings.append(f"the command line of kernel {kernel} stays as it was: {place}")
        if wanted == "none":
            self._settle()

    def came_about(self, _now: str, _wanted: str) -> bool:
        """Always return True: an entry that cannot be changed is reported, and tried again by the next call."""
        return True

    def _configure(self, wanted: bool) -> None:
        text = files.read_text(CMDLINE)
        words = (text if text is not None else self._now()).split()
        if (self.name in words) != wanted or (text is None and wanted):
            words = [*words, self.name] if wanted else [word for word in words if word != self.name]
            text = " ".join(words) + "\n"
        if text is not None:
            self.ledger.write(CMDLINE, text)

    def _settle(self) -> None:
        """Restore the file once no entry is made from it any more: without it kernel-install takes the command line of
        the running system, with the argument. A file that others have edited stays as it is.
        """
        if self.ledger.state["files"].get(CMDLINE, {}).get("edited"):
            self.ledger.leave(CMDLINE)
        else:
            self.ledger.restore(CMDLINE)

    def _stale(self, wanted: str) -> List[str]:
        """Return the kernels with an entry that differs."""
        kernels, has = (self.counting, True) if wanted == "all" else (self.installed, False)
        return [
            kernel for kernel in kernels if any((self.name in line.split()) != has for line in _command_lines(kernel))
        ]

    def _now(self) -> str:
        """Return the command line that kernel-install would use for a new kernel, without words about a single boot."""
        text = files.read_text(_VENDORS)
        told = [line for kernel in self.counting for line in _command_lines(kernel)]
        if text is None:
            text = told[0] if told else files.read_text("/proc/cmdline") or ""
        return " ".join(word for word in text.split() if not _OF_ONE_BOOT.match(word))


def argument(
    name: str,
    ledger: Ledger,
    machine: Machine,
    kernels: Sequence[str],
    env: Dict[str, str],
    *,
    log: boot_image.Log = None,
) -> boot_arguments.Argument:
    """Return an argument handled by this host's own tool."""
    for tool, kind in (("pbl", boot_arguments.Pbl), ("grubby", boot_arguments.Grubby)):
        if process.which(tool, env):
            made: boot_arguments.Argument = kind(name, env, lambda argv: boot_image.command(argv, env, log))
            return made
    installed = [kernel["release"] for kernel in machine.kernels()["installed"]]
    return Entries(name, ledger, (machine.wanted_kernels(kernels), installed), env, log)


def _places(kernel: str) -> List[str]:
    host = LiveHost()
    return [entry.path for entry in kernels.entries(host, kernel)] + kernels.unified(host, kernel)


def _command_lines(kernel: str) -> List[str]:
    """Return the command lines of a kernel: one for each entry or unified image."""
    return [_command_line(place) for place in _places(kernel)]


def _command_line(place: str) -> str:
    if not place.endswith(".efi"):
        return " ".join(re.findall(r"^options\s+(.*)$", files.read_text(place) or "", re.MULTILINE))
    with open(place, "rb") as handle:
        try:
            start, size = initramfs.section(handle, b".cmdline")
        except initramfs.Unreadable:
            return ""
        handle.seek(start)
        return handle.read(size).rstrip(b"\0").decode("utf-8", "replace")
