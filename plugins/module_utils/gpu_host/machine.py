"""The machine under the stack, through the probe's own eyes. A simulated host answers from its capture."""

import os
from typing import Any, Dict, Iterable, List, Optional

from ..gpu_probe import driver_state, firmware, kernels, modules
from ..gpu_probe.host import FolderHost, LiveHost


class Machine:
    """This host; with `simulated_root`, its running kernel and firmware are the captured machine's."""

    def __init__(self, simulated_root: str = "") -> None:
        self.host = LiveHost()
        self.simulated = FolderHost(simulated_root) if simulated_root else None
        self._kernels: Optional[Dict[str, Any]] = None

    def facts(self) -> Dict[str, Any]:
        """Return what the judge asks of a driver, as it is at this moment."""
        return driver_state.collect(self.host, self.simulated)

    @property
    def running_from(self) -> LiveHost:
        """Return where the running system is read."""
        return self.simulated or self.host

    def kernels(self) -> Dict[str, Any]:
        """Return the probe's kernels: running, next, installed."""
        if self._kernels is None:
            self._kernels = dict(self.facts()["kernel"])
        return self._kernels

    def wanted_kernels(self, given: Iterable[str]) -> List[str]:
        """Return the kernels that count: those given, else the one that boots next."""
        return list(given) or [self.kernels()["next"]]

    def module_on_disk(self, kernel: str) -> Optional[Dict[str, Any]]:
        """Return the NVIDIA module file of a kernel as the probe reads it, None without one."""
        return modules.find(self.host, kernel)

    def secure_boot(self) -> bool:
        """Say whether the kernel takes only signed modules because of how the machine boots."""
        return bool(firmware.collect(self.running_from, self.host)["secure_boot"])

    def has_headers(self, kernel: str) -> bool:
        """Say whether modules can be built for a kernel."""
        return kernels.has_headers(self.host, kernel)

    def loaded(self) -> List[str]:
        """Return the names of the loaded GPU modules."""
        return modules.loaded(self.host)

    def module_users(self) -> Dict[str, Any]:
        """Return how often each loaded GPU module is used, and by which modules, as it is at this moment."""
        return modules.users(self.host)

    def container(self) -> bool:
        """Say whether this is a container that shares another system's kernel (and is no lab host)."""
        if self.simulated is not None:
            return False
        return any(os.path.exists(path) for path in ("/run/.containerenv", "/.dockerenv", "/run/systemd/container"))
