#!/usr/bin/python
"""Ansible module: keep nouveau off the GPU."""

DOCUMENTATION = r"""
module: gpu_nouveau
short_description: Keep nouveau off the GPU, in modprobe.d, on the kernel command line and in the initramfs that boots
  next
description:
  - Rebuilds the initramfs only of kernels whose image would still start nouveau, checks that C(/boot) has room first,
    and reads the image afterwards as proof.
  - Runs detached; repeat the call until C(finished) is true.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_nouveau]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Keep nouveau off the GPU
  gpusetup.stack.gpu_nouveau:
  register: nouveau
  until: nouveau.finished
  retries: 100
  delay: 0
"""

RETURN = r"""
initramfs:
  description: For each kernel the image, whether it was rebuilt, and whether it carries nouveau and a blacklist.
  returned: when finished
  type: list
  elements: dict
loaded:
  description: Whether nouveau is loaded now.
  returned: when finished
  type: bool
"""

import os
from typing import Any, Callable, Dict, List, Optional

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    boot_arguments,
    boot_image,
    followers,
    jobs,
    params,
    process,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge.names import NOUVEAU_FILE

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
        request: Dict[str, Any],
        check: bool = False,
        tell: Optional[Callable[..., None]] = None,
        log: Optional[Callable[[str], None]] = None,
        seen: Optional[Dict[str, Dict[str, Any]]] = None,
    ) -> None:
        self.params = request
        self.check = check
        self.ledger = Ledger(request["state_dir"], check)
        self.machine = Machine(request["simulated_root"])
        self.env = process.environment()
        self.tell = tell or (lambda *_words: None)
        self.log = log
        self.seen = {} if seen is None else seen
        self.warnings: List[str] = []

    def run(self) -> Dict[str, Any]:
        """Apply it; return {"changed", "initramfs", …}."""
        present = self.params["state"] == "present"
        kernels = self.machine.wanted_kernels(self.params["kernels"])
        if present and not self.check:  # before the first change
            followers.check_room(kernels, self.env, self.seen)
        changed = self.ledger.write(NOUVEAU_FILE, _CONTENT) if present else self._restored(NOUVEAU_FILE)
        argued = self._argument(present and self.params["kernel_argument"])
        images = [self._image(kernel, present) for kernel in kernels]
        return {
            "changed": bool(changed or argued or any(image["rebuilt"] for image in images)),
            "initramfs": images,
            "loaded": "nouveau" in self.machine.loaded(),
            "warnings": self.warnings,
            "diff": self.ledger.diffs,
        }

    def _restored(self, path: str) -> bool:
        """Restore a file; if that fails, removal goes on with the rest."""
        restored, why = self.ledger.restore_all([path])
        self.warnings += why
        return bool(restored)

    # kernel command line

    def _argument(self, wanted: bool) -> bool:
        kernels = self.params["kernels"]
        argument = boot_arguments.argument(ARGUMENT, self.ledger, self.machine, kernels, self.env, log=self.log)
        entries = argument if isinstance(argument, boot_arguments.Entries) else None
        usable = entries is not None and entries.usable()
        booted_from_it = isinstance(argument, boot_arguments.Pbl) or (usable and boot_arguments.systemd_boot_runs())
        if not booted_from_it and self._has_menu(isinstance(argument, boot_arguments.Grubby)):
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

    def _has_menu(self, grubby: bool) -> bool:
        """Return whether GRUB's menu comes from files that can contain the argument, and not from grubby alone."""
        update, folder = process.which("update-grub", self.env), os.path.isdir("/etc/default/grub.d")
        return bool((update and os.path.exists("/etc/default/grub")) or (folder and (update or not grubby)))

    def _in_menu(self, wanted: bool) -> bool:
        changed = self.ledger.write(GRUB_DROP_IN, _GRUB) if wanted else self._restored(GRUB_DROP_IN)
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
        if present and not self.check and image.loads_nouveau():
            what = "the initramfs of the next boot would still load nouveau"
            note = "it was rebuilt, but it contains nouveau and no blacklist"
            hint = "check for a hook in /etc/initramfs-tools or /etc/dracut.conf.d that adds it"
            raise HostFailure("GS-481", what, image.path, note, hint)
        return answer


SPEC = {
    "state": params.choice("C(present) keeps nouveau away, C(absent) undoes it.", ["present", "absent"], "present"),
    "kernel_argument": params.flag("Also on the kernel command line.", True),
    "kernels": params.texts("Kernels whose initramfs counts; empty is the one that boots next."),
    "poll": params.number("Longest wait of one call in seconds.", 10),
}


def main() -> None:
    module, request = params.opened(SPEC)
    wait = request.pop("poll")
    job = jobs.Job(request["state_dir"], "nouveau", request)
    seen: Dict[str, Dict[str, Any]] = {}
    told: List[str] = []
    if module.check_mode or not job.joinable():  # a job that rebuilds the initramfs has already written the files
        with params.failing(module, finished=True, progress={}):
            result = Nouveau(request, check=True, seen=seen).run()
        told = result.pop("warnings")
        for text in told:
            module.warn(text)
        if module.check_mode or not result["changed"]:
            module.exit_json(finished=True, progress={}, **result)

    def work(running: jobs.Job) -> Dict[str, Any]:
        result = Nouveau(request, tell=running.tell, log=running.log, seen=seen).run()
        return dict(result, warnings=[text for text in result["warnings"] if text not in told])

    with params.failing(module, finished=True, progress={}):
        status = job.start_or_join(work, wait)
    params.follow(module, status, job.log_path)


if __name__ == "__main__":
    main()
