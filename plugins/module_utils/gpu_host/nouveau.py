"""Keep nouveau off the GPU: modprobe.d, kernel command line, initramfs of the kernels that count; proven afterwards."""

import os
import shutil
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..gpu_judge.names import NOUVEAU_FILE
from . import boot_arguments, boot_entries, boot_image, followers, process
from .failure import HostFailure
from .ledger import Ledger
from .machine import Machine

GRUB_DROP_IN = "/etc/default/grub.d/gpusetup-nouveau.cfg"
ARGUMENT = "modprobe.blacklist=nouveau,nova_core"
_NO_BOOT_LOADER = "no boot loader that gpusetup can configure: only modprobe.d and the initramfs keep nouveau off"
_CONTENT = """# Written by gpusetup: the NVIDIA driver and nouveau cannot share a GPU.
blacklist nouveau
blacklist nova_core
options nouveau modeset=0
"""
_GRUB = f"""# Written by gpusetup.
GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {ARGUMENT}"
"""


class Nouveau:
    """One host; `present` means blacklisted. `seen` keeps what is in which image, from a look before to the work after
    it.
    """

    def __init__(
        self,
        params: Dict[str, Any],
        check: bool = False,
        tell: Optional[Callable[..., None]] = None,
        log: Optional[Callable[[str], None]] = None,
        seen: Optional[Dict[str, Dict[str, Any]]] = None,
    ) -> None:
        self.params = params
        self.check = check
        self.ledger = Ledger(params["state_dir"], check)
        self.machine = Machine(params["simulated_root"])
        self.env = process.environment()
        self.tell = tell or (lambda *_words: None)
        self.log = log
        self.seen = {} if seen is None else seen
        self.warnings: List[str] = []

    def run(self) -> Dict[str, Any]:
        """Do it; return {"changed", "initramfs", …}."""
        present = self.params["state"] == "present"
        changed = self.ledger.write(NOUVEAU_FILE, _CONTENT) if present else self.ledger.restore(NOUVEAU_FILE)
        argued = self._argument(present and self.params["kernel_argument"])
        images = [self._image(kernel, present) for kernel in self.machine.wanted_kernels(self.params["kernels"])]
        return {
            "changed": bool(changed or argued or any(image["rebuilt"] for image in images)),
            "initramfs": images,
            "loaded": "nouveau" in self.machine.loaded(),
            "warnings": self.warnings,
            "diff": self.ledger.diffs,
        }

    # kernel command line

    def _argument(self, wanted: bool) -> bool:
        if shutil.which("pbl", path=self.env["PATH"]):
            return self._pbl(wanted)
        grubby = bool(shutil.which("grubby", path=self.env["PATH"]))
        if not grubby and boot_entries.systemd_boot_runs() and self._entries(wanted).usable():
            return self._in_entries(wanted)
        if os.path.isdir("/etc/default/grub.d") or (
            shutil.which("update-grub", path=self.env["PATH"]) and os.path.exists("/etc/default/grub")
        ):
            changed = self.ledger.write(GRUB_DROP_IN, _GRUB) if wanted else self.ledger.restore(GRUB_DROP_IN)
            menu = followers.BootMenu(ARGUMENT, self.env, self.log)
            settled = followers.settle([menu], self.check)
            if not self.check and menu.due():
                self.warnings.append(
                    f"update-grub {'does not bring' if wanted else 'leaves'} {ARGUMENT} in the boot menu: "
                    "is there another file in /etc/default/grub.d or /etc/grub.d that sets the arguments?"
                )
            return bool(changed or settled)
        if grubby:
            return self._grubby(wanted)
        if self._entries(wanted).usable():
            return self._in_entries(wanted)
        if wanted:
            self.warnings.append(_NO_BOOT_LOADER)
        return False

    def _entries(self, wanted: bool) -> boot_entries.Entries:
        """Return the entries of the kernels that count; to take the argument out, those of all."""
        kernels = self.machine.wanted_kernels(self.params["kernels"])
        if not wanted:
            kernels = [kernel["release"] for kernel in self.machine.kernels()["installed"]]
        return boot_entries.Entries(self.ledger, kernels, self.env, self.log)

    def _in_entries(self, wanted: bool) -> bool:
        entries = self._entries(wanted)
        changed = entries.bring(ARGUMENT, wanted)
        self.warnings += entries.warnings
        return changed

    def _grubby(self, wanted: bool) -> bool:
        argument = boot_arguments.Grubby(ARGUMENT, self.env, self._command)
        return self.ledger.change(argument, "all") if wanted else self.ledger.undo(argument)

    def _pbl(self, wanted: bool) -> bool:
        argument = boot_arguments.Pbl(ARGUMENT, self.env, self._command)
        try:
            return self.ledger.change(argument, argument.with_ours()) if wanted else self.ledger.undo(argument)
        except boot_arguments.NoBootLoader:
            self.warnings.append(_NO_BOOT_LOADER)
            return False

    # initramfs

    def _image(self, kernel: str, present: bool) -> Dict[str, Any]:
        image = followers.BootImage(kernel, self.env, self.log, self.seen, forgets=not present)
        answer: Dict[str, Any] = {
            "kernel": kernel, "path": image.path, "rebuilt": False, "nouveau": None, "blacklist": None,
        }  # fmt: skip
        if image.path is None:
            lacking = boot_image.lacking(kernel)
            if lacking and present:
                self.warnings.append(lacking)
            return answer
        if image.due():
            answer["rebuilt"] = True
            if not self.check:
                self.tell("initramfs", "rebuilding the initramfs of " + kernel)
                image.run()
        seen = image.look()
        answer.update(nouveau=seen["nouveau"], blacklist=seen["blacklist"])
        if present and not self.check and seen["nouveau"] and not seen["blacklist"]:
            raise HostFailure(
                "GS-481",
                "the initramfs of the next boot would still load nouveau",
                image.path,
                "it was rebuilt, but it contains nouveau and no blacklist",
                "check for a hook in /etc/initramfs-tools or /etc/dracut.conf.d that adds it",
            )
        return answer

    def _command(self, argv: Sequence[str]) -> None:
        boot_image.command(argv, self.env, self.log)
