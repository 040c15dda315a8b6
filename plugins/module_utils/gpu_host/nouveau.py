"""Keep nouveau off the GPU: modprobe.d, kernel command line, initramfs of the relevant kernels; verified afterwards."""

import os
from typing import Any, Callable, Dict, List, Optional

from ..gpu_judge.names import NOUVEAU_FILE
from . import boot_arguments, boot_image, followers, process
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
    """One host; `present` means blacklisted. `seen` caches what is in which image for later calls."""

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
        """Apply it; return {"changed", "initramfs", …}."""
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
        kernels = self.params["kernels"]
        argument = boot_arguments.argument(ARGUMENT, self.ledger, self.machine, kernels, self.env, log=self.log)
        entries = argument if isinstance(argument, boot_arguments.Entries) else None
        usable = entries is not None and entries.usable()
        booted_from_it = isinstance(argument, boot_arguments.Pbl) or (usable and boot_arguments.systemd_boot_runs())
        if not booted_from_it and self._has_menu():
            return self._in_menu(wanted)
        if entries is not None and not usable:
            self.warnings += [_NO_BOOT_LOADER] if wanted else []
            return False
        try:
            changed = self.ledger.change(argument, argument.wanted()) if wanted else self.ledger.undo(argument)
        except boot_arguments.NoBootLoader:
            self.warnings.append(_NO_BOOT_LOADER)
            return False
        self.warnings += entries.warnings if entries is not None else []
        return changed

    def _has_menu(self) -> bool:
        """Return whether GRUB's menu is made from files that can contain the argument."""
        update = process.which("update-grub", self.env) and os.path.exists("/etc/default/grub")
        return bool(os.path.isdir("/etc/default/grub.d") or update)

    def _in_menu(self, wanted: bool) -> bool:
        changed = self.ledger.write(GRUB_DROP_IN, _GRUB) if wanted else self.ledger.restore(GRUB_DROP_IN)
        menu = followers.BootMenu(ARGUMENT, self.env, self.log)
        settled = followers.settle([menu], self.check)
        if not self.check and menu.due():
            self.warnings.append(
                f"update-grub {'does not bring' if wanted else 'leaves'} {ARGUMENT} in the boot menu: "
                "is there another file in /etc/default/grub.d or /etc/grub.d that sets the arguments?"
            )
        return bool(changed or settled)

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
