"""What a virtual machine says about itself: its boots, its packages and settings, how its bootstrap ended."""

import json
from dataclasses import dataclass
from typing import Any

from tests.lab.bootstrapping import FINAL, UNIT
from tests.lab.host import Host
from tests.lab.plays import packages
from tests.vm.machine import VirtualMachine

BOOTS = "/var/lib/gpusetup-lab/boots"
SETTINGS = ("/boot", "/etc", "/opt", "/usr/local", "/usr/lib/modules")
CHANGE_AT_BOOT = ("/etc/resolv.conf", "/etc/.pwd.lock", "/boot/grub/grubenv", "__pycache__", "/etc/apt/sources.list")


@dataclass(frozen=True)
class Boot:
    """One boot as the machine kept it. `before`: in the initramfs, where the display driver is first asked for."""

    identifier: str
    arguments: str
    loaded: frozenset[str]
    arguments_before: str
    loaded_before: frozenset[str]
    nouveau_before: str
    """What its modprobe would load there for the name nouveau, with the blacklist applied."""
    rules_before: str


def boots(host: Host) -> list[Boot]:
    """All boots, oldest first."""
    code = (
        "import json,os\n"
        f"top={BOOTS!r}\n"
        "read=lambda n,f: open(os.path.join(top,n,f),errors='replace').read() if os.path.exists(os.path.join(top,n,f)) else ''\n"
        "names=('boot_id','cmdline','modules','initramfs/cmdline','initramfs/modules','initramfs/nouveau','initramfs/modprobe.d')\n"
        "print(json.dumps([[read(n,f) for f in names] for n in sorted(os.listdir(top))]))\n"
    )
    told = json.loads(host.ssh("python3", "-c", code).stdout)
    return [
        Boot(one[0].strip(), one[1], _names(one[2]), one[3], _names(one[4]), one[5].strip(), one[6]) for one in told
    ]


def _names(modules: str) -> frozenset[str]:
    return frozenset(line.split()[0] for line in modules.splitlines())


def snapshot(host: Host) -> dict[str, Any]:
    """Packages, and every file where a machine keeps its settings, its kernels and their modules, by size and time."""
    found = host.ssh("find", *SETTINGS, "-xdev", "-type", "f", "-printf", "%p %s %T@\n").stdout
    files = sorted(line for line in found.splitlines() if not any(word in line for word in CHANGE_AT_BOOT))
    record = host.ssh("cat", "/var/lib/gpusetup/status.json").stdout
    return {"packages": packages(host), "files": files, "record": record}


def wait_for_end(host: VirtualMachine, timeout: float) -> dict[str, Any]:
    """Until done or failed with the reason, the unit ended, cloud-init too."""
    states = "|".join(sorted(FINAL))
    host.until(f"""grep -qE '"state": ?"({states})"' /var/lib/gpusetup/status.json""", timeout)
    host.until(f"! systemctl is-active --quiet {UNIT} && [ -e /run/cloud-init/result.json ]", 120)
    return host.status()


def again(host: VirtualMachine) -> list[str]:
    before = snapshot(host)
    host.reboot()
    host.until(f"! systemctl is-active --quiet {UNIT}", 60)
    after = snapshot(host)
    changed = [
        f"{name}: {before[name]} → {after[name]}" for name in ("record", "packages") if before[name] != after[name]
    ]
    return changed + sorted(set(before["files"]) ^ set(after["files"]))
