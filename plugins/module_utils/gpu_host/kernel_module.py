"""The nvidia module in the running kernel: its options, loading it, replacing it without a reboot, or why a reboot is needed."""

import re

from ..gpu_probe import sessions
from . import process, signing
from .failure import HostFailure

OPTIONS = "/etc/modprobe.d/gpusetup-nvidia.conf"
LOAD = "/etc/modules-load.d/gpusetup.conf"
_UNLOAD = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia")
_SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nvidia-imex")
_HOLDERS = ("nvidia-persiste", "nv-fabricmanager", "nv-hostengine", "nvidia-imex")


def configuration(options, load):
    """Return {path: content or None} of modprobe.d and modules-load.d."""
    for name, value in options.items():
        if not re.match(r"^\w+$", name) or not re.match(r"^[\w.,:;=/-]+$", str(value)):
            raise HostFailure("GS-483", f"{name}={value} is no module option")
    for name in load:
        if not re.match(r"^[\w-]+$", name):
            raise HostFailure("GS-483", f"{name!r} is no module name")
    words = " ".join(f"{name}={options[name]}" for name in sorted(options))
    return {
        OPTIONS: f"# Written by gpusetup.\noptions nvidia {words}\n" if options else None,
        LOAD: "# Written by gpusetup.\n{}\n".format("\n".join(load)) if load else None,
    }


def reboot_reasons(machine, version, flavour, kernels):
    """Return why the host needs a reboot before the wanted driver runs, from its state alone."""
    if not version:
        return []
    reasons, seen = [], machine.kernels()
    loaded = machine.loaded_nvidia()
    wanted = machine.wanted_kernels(kernels)
    if seen["running"] not in wanted and machine.module_on_disk(seen["running"]) is None:
        reasons.append("kernel {} runs, the driver is there for {}".format(seen["running"], ", ".join(wanted)))
    if "nouveau" in machine.loaded() or "nova_core" in machine.loaded():
        reasons.append("nouveau is loaded")
    if loaded is None:
        reasons.append(f"nvidia {version} is on disk, none is loaded")
    elif loaded["version"] != version:
        reasons.append("nvidia {} is loaded, {} is on disk".format(loaded["version"], version))
    elif flavour and loaded["flavour"] and loaded["flavour"] != flavour:
        reasons.append("the {} module is loaded, the {} one is on disk".format(loaded["flavour"], flavour))
    unsigned = signing.waiting(machine) if reasons else None
    if unsigned:
        reasons.append(unsigned)
    return reasons


class Loader:
    """Loads or replaces the module of the running kernel, only when nothing uses the old one."""

    def __init__(self, machine):
        self.machine = machine
        self.env = process.environment()

    def obstacle(self, version, kernels):
        """Return why the module cannot be loaded now, None when it can."""
        running = self.machine.kernels()["running"]
        found = self.machine.module_on_disk(running)
        if self.machine.simulated is not None:
            return "a simulated host has no kernel of its own to load a module into"
        if found is None or (version and found["version"] != version):
            return f"the running kernel {running} has no module {version}"
        if "nouveau" in self.machine.loaded() or "nova_core" in self.machine.loaded():
            return "nouveau is loaded"
        if signing.waiting(self.machine):
            return "the kernel does not know the key that signs it"
        users = self._users()
        return "in use by " + ", ".join(users) if users else None

    def _users(self):
        found = []
        for item in sessions.gpu_processes(self.machine.host) or []:
            name = item.get("name") or item.get("command") or "?"
            if not name.startswith(_HOLDERS):
                found.append("{} ({})".format(name, item.get("pid")))
        for name in ("nvidia_drm", "nvidia_modeset"):
            if (self.machine.references(name) or 0) > (1 if name == "nvidia_modeset" else 0):
                found.append(f"{name} (display)")
        return found

    def load(self):
        """Unload what is loaded and load the module on disk; return None, or why it did not work (then a reboot is needed)."""
        active = [
            name for name in _SERVICES if process.output(["systemctl", "is-active", "-q", name], self.env)[0] == 0
        ]
        for name in active:
            process.output(["systemctl", "stop", name], self.env, 60)
        trouble = None
        for name in [name for name in _UNLOAD if name in self.machine.loaded()]:
            code, _out, error = process.output(["rmmod", name], self.env, 60)
            trouble = trouble or (error.strip() if code else None)
        for name in ("nvidia", "nvidia-uvm"):
            code, _out, error = process.output(["modprobe", name], self.env, 120)
            trouble = trouble or (error.strip() if code else None)
        for name in active:
            process.output(["systemctl", "start", name], self.env, 60)
        return trouble
