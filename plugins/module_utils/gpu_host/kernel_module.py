"""The nvidia module in the running kernel: its options, loading it, replacing it without a reboot."""

import os
import re
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ..gpu_judge import driver
from . import files, process
from .failure import HostFailure
from .gpu_users import settled
from .machine import Machine
from .systemd import Stopped

OPTIONS = "/etc/modprobe.d/gpusetup-nvidia.conf"
PARAMETERS = "/proc/driver/nvidia/params"
_MODULE_PARAMETERS = "/sys/module/nvidia/parameters/"
_ALSO_CALLED = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
"""Options that the driver shows under another name than the one that sets them."""
LOAD = "/etc/modules-load.d/gpusetup.conf"


def configuration(options: Dict[str, Any], load: Iterable[str]) -> Dict[str, Optional[str]]:
    """Return {path: content or None} for modprobe.d and modules-load.d."""
    for name, value in options.items():
        if not re.fullmatch(r"\w+", name) or not re.fullmatch(r"[\w.,:;=/-]+", str(value)):
            raise HostFailure("GS-483", f"{name}={value} is not a module option")
    for name in load:
        if not re.fullmatch(r"[\w-]+", name):
            raise HostFailure("GS-483", f"{name!r} is not a module name")
    words = " ".join(f"{name}={options[name]}" for name in sorted(options))
    return {
        OPTIONS: f"# Written by gpusetup.\noptions nvidia {words}\n" if options else None,
        LOAD: "# Written by gpusetup.\n{}\n".format("\n".join(load)) if load else None,
    }


def written() -> Dict[str, str]:
    return _parsed(files.read_text(OPTIONS) or "")


def otherwise(options: Mapping[str, Any], paths: Iterable[str], env: Dict[str, str]) -> Tuple[List[str], List[str]]:
    """Return which options differ in the loaded module: those that loading it again would change, and those that it
    would not. Options that the driver does not show are left out.

    The module takes its options from `paths`. If all of them are older than the boot, another boot changes nothing.
    """
    waiting, refused = [], []
    young = any(files.changed_at(path) > _booted() for path in (OPTIONS, *paths) if os.path.exists(path))
    for name, now in _shown(options).items():
        wanted = options[name]
        if _plain(now) == _plain(wanted):
            continue
        told = f"the module is loaded with {name}={now}, {wanted} is wanted"
        said = _parsed(process.looked("GS-483", ["modprobe", "-c"], env)[1]).get(name)
        if said is not None and _plain(said) != _plain(wanted):
            refused.append(f"{told}: something beside {OPTIONS} sets {said} (modprobe -c shows it)")
        elif young:
            waiting.append(told)
        else:
            refused.append(told + ": the driver did not take it at the last boot")
    return waiting, refused


def kept(options: Mapping[str, Any]) -> List[str]:
    """Return which of these no longer wanted options the loaded module still has."""
    same = [name for name, now in _shown(options).items() if _plain(now) == _plain(options[name])]
    return [f"the module is loaded with {name}={options[name]}, which is no longer set" for name in same]


def _shown(options: Iterable[str]) -> Dict[str, str]:
    text = files.read_text(PARAMETERS)
    if text is None:
        return {}
    shown, found = dict(re.findall(r"^(\w+):[ \t]*(.*?)\s*$", text, re.MULTILINE)), {}
    for name in sorted(options):
        bare = re.sub(r"^NVreg_", "", name)
        now = shown.get(bare, shown.get(_ALSO_CALLED.get(bare, "")))
        now = files.read_text(_MODULE_PARAMETERS + name) if now is None else now
        if now is not None:
            found[name] = now.strip().strip('"')
    return found


def _parsed(text: str) -> Dict[str, str]:
    words = [word for line in re.findall(r"^options nvidia (.*)$", text, re.MULTILINE) for word in line.split()]
    return {name: value for name, _equals, value in (word.partition("=") for word in words)}


def _booted() -> float:
    return time.time() - float((files.read_text("/proc/uptime") or "0").split()[0])


def _plain(value: Any) -> Any:
    """Return a value as the driver stores it: a number of 32 bits, or text."""
    text = {"y": "1", "n": "0"}.get(str(value).strip().lower(), str(value).strip().strip("\"'"))
    try:
        return int(text, 0) & 0xFFFFFFFF
    except ValueError:
        return text.rstrip(";")


class Loader:
    """Loads or replaces the running kernel's module, only if nothing uses the old one (the judge's `obstacle`).

    The driver's own services are stopped meanwhile and started again in any case.
    """

    def __init__(self, machine: Machine, record: Any) -> None:
        self.machine, self.record = machine, record
        self.env = process.environment()

    def load(self) -> Optional[str]:
        """Unload the loaded module and load the one on disk; return None, or why that failed and needs a reboot."""
        with Stopped(driver.FOR_EXCHANGE, self.env, self.record) as stopped:
            users = self.machine.module_users
            trouble = stopped.trouble or settled(lambda: driver.in_use(users()), bool) or self._replaced()
        return trouble or stopped.trouble

    def _replaced(self) -> Optional[str]:
        there = self.machine.loaded()
        before = [name for name in driver.UNLOAD if name in there]
        trouble: Optional[str] = None
        for name in before:
            code, _out, error = process.output(["rmmod", name], self.env, 60)
            if code:  # modules that depend on it remain; those already removed are loaded again below
                trouble = error.strip() or f"rmmod {name} failed"
                break
        for name in dict.fromkeys(["nvidia", "nvidia_uvm", *reversed(before)]):
            code, _out, error = process.output(["modprobe", name.replace("_", "-")], self.env, 120)
            trouble = trouble or (error.strip() or f"modprobe {name} failed" if code else None)
        return trouble
