"""The machine, as the probe sees it. A simulated host answers from its capture."""

import os
from typing import Any, Dict, Iterable, List, Optional

from ..gpu_probe import firmware, kernels, modules
from ..gpu_probe.host import FolderHost, LiveHost


class Machine:
    """This host; with `simulated_root`, its running kernel and firmware are the captured machine's."""

    def __init__(self, simulated_root: str = "") -> None:
        self.host = LiveHost()
        self.simulated = FolderHost(simulated_root) if simulated_root else None
        self._kernels: Optional[Dict[str, Any]] = None

    def facts(self) -> Dict[str, Any]:
        return kernels.driver_state(self.host, self.simulated)

    @property
    def running_from(self) -> LiveHost:
        """The host from which the running system is read."""
        return self.simulated or self.host

    def kernels(self) -> Dict[str, Any]:
        if self._kernels is None:
            self._kernels = dict(self.facts()["kernel"])
        return self._kernels

    def wanted_kernels(self, given: Iterable[str]) -> List[str]:
        """Return the relevant kernels: those given, else the next one to boot."""
        return list(given) or [self.kernels()["next"]]

    def module_on_disk(self, kernel: str) -> Optional[Dict[str, Any]]:
        """Return a kernel's NVIDIA module file as the probe reads it, None without one."""
        return modules.find(self.host, kernel)

    def secure_boot(self) -> bool:
        """Return whether Secure Boot limits the kernel to signed modules."""
        return bool(firmware.collect(self.running_from, self.host)["secure_boot"])

    def has_headers(self, kernel: str) -> bool:
        return kernels.has_headers(self.host, kernel)

    def loaded(self) -> List[str]:
        return modules.loaded(self.host)

    def module_users(self) -> Dict[str, Any]:
        return modules.users(self.host)

    def container(self) -> bool:
        """Return whether this is a container that shares another system's kernel (and no lab host)."""
        if self.simulated is not None:
            return False
        return any(os.path.exists(path) for path in ("/run/.containerenv", "/.dockerenv", "/run/systemd/container"))
