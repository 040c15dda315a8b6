"""The nvidia module in the running kernel: its options, loading it, replacing it without a reboot."""

import re
from typing import Any, Dict, Iterable, Optional

from ..gpu_judge import driver, holders
from . import process
from .failure import HostFailure
from .machine import Machine
from .systemd import Stopped

OPTIONS = "/etc/modprobe.d/gpusetup-nvidia.conf"
LOAD = "/etc/modules-load.d/gpusetup.conf"


def configuration(options: Dict[str, Any], load: Iterable[str]) -> Dict[str, Optional[str]]:
    """Return {path: content or None} of modprobe.d and modules-load.d."""
    for name, value in options.items():
        if not re.match(r"^\w+$", name) or not re.match(r"^[\w.,:;=/-]+$", str(value)):
            raise HostFailure("GS-483", f"{name}={value} is not a module option")
    for name in load:
        if not re.match(r"^[\w-]+$", name):
            raise HostFailure("GS-483", f"{name!r} is not a module name")
    words = " ".join(f"{name}={options[name]}" for name in sorted(options))
    return {
        OPTIONS: f"# Written by gpusetup.\noptions nvidia {words}\n" if options else None,
        LOAD: "# Written by gpusetup.\n{}\n".format("\n".join(load)) if load else None,
    }


class Loader:
    """Loads or replaces the module of the running kernel, only when nothing uses the old one (the judge's
    `obstacle`).

    Services of the driver itself are stopped for it, and started again whatever comes of it.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.env = process.environment()

    def load(self) -> Optional[str]:
        """Unload what is loaded and load the module on disk; return None, or why it did not work (then a reboot is
        needed).
        """
        with Stopped(holders.FOR_EXCHANGE, self.env, wait=True) as stopped:
            trouble = stopped.trouble or driver.in_use(self.machine.module_users()) or self._replaced()
        return trouble or stopped.trouble

    def _replaced(self) -> Optional[str]:
        there = self.machine.loaded()
        before = [name for name in driver.UNLOAD if name in there]
        trouble: Optional[str] = None
        for name in before:
            code, _out, error = process.output(["rmmod", name], self.env, 60)
            if code:  # what sits on it is still there: what went already comes back below
                trouble = error.strip() or f"rmmod {name} failed"
                break
        for name in dict.fromkeys(["nvidia", "nvidia_uvm", *reversed(before)]):
            code, _out, error = process.output(["modprobe", name.replace("_", "-")], self.env, 120)
            trouble = trouble or (error.strip() or f"modprobe {name} failed" if code else None)
        return trouble
