"""The machine under the stack, through the probe's own eyes: kernels, modules, what is loaded. A simulated host answers from its capture."""

import os

from .. import gpu_probe
from ..gpu_probe import kernels, modules


class Machine:
    """This host; with `simulated_root`, its running kernel and loaded modules are the captured machine's."""

    def __init__(self, simulated_root=""):
        self.host = gpu_probe.LiveHost()
        self.simulated = gpu_probe.FolderHost(simulated_root) if simulated_root else None
        self._kernels = None

    @property
    def running_from(self):
        """Return where the running system is read."""
        return self.simulated or self.host

    def kernels(self):
        """Return the probe's kernels: running, next, installed."""
        if self._kernels is None:
            self._kernels = kernels.collect(self.host)
            if self.simulated is not None:
                running = self.simulated.value("/proc/sys/kernel/osrelease")
                captured = kernels.collect(self.simulated)
                own = [item["release"] for item in self._kernels["installed"]]
                self._kernels["next"] = own[-1] if own else captured["next"]
                self._kernels["running"] = running or self._kernels["next"]
                self._kernels["cmdline"] = kernels.gpu_arguments(self.simulated.value("/proc/cmdline") or "")
        return self._kernels

    def wanted_kernels(self, given):
        """Return the kernels that count: those given, else the one that boots next."""
        return list(given) or [self.kernels()["next"]]

    def module_on_disk(self, kernel):
        """Return the NVIDIA module file of a kernel as the probe reads it, None without one."""
        return modules.find(self.host, kernel)

    def has_headers(self, kernel):
        """Say whether modules can be built for a kernel."""
        return kernels.has_headers(self.host, kernel)

    def loaded(self):
        """Return the names of the loaded GPU modules."""
        return modules.loaded(self.running_from)

    def loaded_nvidia(self):
        """Return version and flavour of the loaded NVIDIA module, None without one."""
        return modules.loaded_nvidia(self.running_from)

    def references(self, name):
        """Return how many users a loaded module has, None when it is not loaded."""
        text = self.running_from.value(f"/sys/module/{name}/refcnt")
        return int(text) if text and text.lstrip("-").isdigit() else None

    def container(self):
        """Say whether this is a container that shares another system's kernel (and is no lab host)."""
        if self.simulated is not None:
            return False
        return any(os.path.exists(path) for path in ("/run/.containerenv", "/.dockerenv", "/run/systemd/container"))
