"""An argument on the command line of kernels that kernel-install brings to the boot loader (systemd-boot, unified
kernel images): in /etc/kernel/cmdline for kernels to come, and in the entries of those that count.
"""

import re
from typing import Callable, Dict, List, Optional, Sequence

from ..gpu_probe import boot_images, initramfs
from ..gpu_probe.host import LiveHost
from . import boot_image, files
from .ledger import Ledger

CMDLINE, _VENDORS = "/etc/kernel/cmdline", "/usr/lib/kernel/cmdline"
_LOADER_INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_OF_ONE_BOOT = re.compile(r"^(?:BOOT_IMAGE|initrd|systemd\.machine_id)=")


def systemd_boot_runs() -> bool:
    """Say whether systemd-boot started this system, by what it told the firmware."""
    raw = LiveHost().read_bytes(_LOADER_INFO) or b""
    return raw[4:].decode("utf-16-le", "replace").startswith("systemd-boot")


class Entries:
    """The boot entries of the kernels that count."""

    def __init__(
        self,
        ledger: Ledger,
        kernels: Sequence[str],
        env: Dict[str, str],
        log: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.ledger = ledger
        self.kernels = [kernel for kernel in kernels if _places(kernel)]
        self.env = env
        self.log = log
        self.warnings: List[str] = []

    def usable(self) -> bool:
        """Say whether kernel-install can make the entry of one of these kernels anew."""
        return any(boot_image.can_install(kernel, self.env) for kernel in self.kernels)

    def bring(self, argument: str, wanted: bool) -> bool:
        """Add an argument, or take out one that was added here; return whether that changed something.

        An entry that does not have it yet, because its command failed or was cut off, is made anew by the next call.
        """
        mine = argument in self.ledger.state["arguments"]
        if not (wanted or mine):
            return False
        if wanted and not mine and not self.ledger.check:
            self._record([argument])
        changed = self._configure(argument, wanted)
        stale = [kernel for kernel in self.kernels if self._is_stale(kernel, argument, wanted)]
        if self.ledger.check:
            return changed or bool(stale)
        for kernel in stale:
            if boot_image.can_install(kernel, self.env):
                boot_image.install(kernel, _places(kernel)[0], self.env, self.log)
            if self._is_stale(kernel, argument, wanted):
                place = ", ".join(_places(kernel))
                self.warnings.append(f"the command line of kernel {kernel} stays as it was: {place}")
        if not wanted:
            self._settle()
        return changed or bool(stale)

    def _configure(self, argument: str, wanted: bool) -> bool:
        text = files.read_text(CMDLINE)
        words = (text if text is not None else self._now()).split()
        if (argument in words) == wanted and (text is not None or not wanted):
            return False
        words = [*words, argument] if wanted else [word for word in words if word != argument]
        return self.ledger.write(CMDLINE, " ".join(words) + "\n")

    def _settle(self) -> None:
        """Bring back the file as it was, once no entry is made from it any more: without one kernel-install takes what
        the running system was started with, the argument too. What others changed in it since stays.
        """
        entry = self.ledger.state["files"].get(CMDLINE, {})
        if entry.get("edited"):
            self.ledger.leave(CMDLINE)
        else:
            self.ledger.restore(CMDLINE)
        self._record([])

    def _now(self) -> str:
        """Return the command line that kernel-install would take for a new kernel, without what is of one boot."""
        text = files.read_text(_VENDORS)
        told = [line for kernel in self.kernels for line in _command_lines(kernel)]
        if text is None:
            text = told[0] if told else files.read_text("/proc/cmdline") or ""
        return " ".join(word for word in text.split() if not _OF_ONE_BOOT.match(word))

    def _is_stale(self, kernel: str, argument: str, wanted: bool) -> bool:
        there = [argument in line.split() for line in _command_lines(kernel)]
        if wanted:
            return not all(there)
        return any(there) and argument not in (files.read_text(CMDLINE) or "").split()

    def _record(self, arguments: List[str]) -> None:
        self.ledger.claim_arguments(arguments)


def _places(kernel: str) -> List[str]:
    host = LiveHost()
    return [entry.path for entry in boot_images.entries(host, kernel)] + boot_images.unified(host, kernel)


def _command_lines(kernel: str) -> List[str]:
    """Return the command lines with which a kernel boots: one for each entry or unified image."""
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
