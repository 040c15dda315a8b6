"""The description of NVIDIA's devices for container runtimes (CDI): of the loaded driver, made at each boot."""

import os
from typing import Dict, Iterable, List

from ..gpu_judge.names import CDI_UNITS
from ..gpu_probe import containers, modules
from ..gpu_probe.host import LiveHost
from . import files, process, services
from .failure import HostFailure
from .ledger import Ledger

REFRESH = CDI_UNITS[:2]
"""Units of the toolkit itself since 1.18."""
UNIT = "/etc/systemd/system/" + CDI_UNITS[2]
PLACE = "/var/run/cdi/nvidia.yaml"
"""Gone at the next boot, so that it never outlives its driver; it takes precedence over /etc/cdi."""
_UNIT = """# Written by gpusetup: this container toolkit has no unit of its own that does it.
[Unit]
Description=Describe NVIDIA's devices to container runtimes (CDI)
ConditionPathExists=/proc/driver/nvidia/version
After=nvidia-persistenced.service
Before=docker.service containerd.service crio.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=90
ExecStart={tool} cdi generate --output={place}
ExecStop=/bin/rm -f {place}

[Install]
WantedBy=multi-user.target
"""


def keep_described(ledger: Ledger, tool: str, env: Dict[str, str], check: bool) -> bool:
    """Have the description made at every boot, and now unless one fits the driver; return whether anything changed."""
    seen = services.look(REFRESH, env)
    units = [unit for unit in REFRESH if seen[unit]["exists"]] or [os.path.basename(UNIT)]
    changed = units[0] not in REFRESH and ledger.write(UNIT, _UNIT.format(tool=tool, place=PLACE))
    # A oneshot service is enabled, but need not be running.
    ups = [services.bring_up(ledger, [unit], unit.endswith(".path"), env) for unit in units]
    changed = changed or any(ups)
    loaded = (modules.loaded_nvidia(LiveHost()) or {}).get("version")
    if loaded and due(loaded):
        changed = True
        if not check:
            _describe(units[-1], tool, loaded, env)
    return changed


def give_up(ledger: Ledger, env: Dict[str, str]) -> bool:
    """Restore the units to their state before us, and remove ours; return whether anything changed."""
    changed = services.take_down(ledger, env, CDI_UNITS)
    return ledger.give_up_file(UNIT) or bool(changed)


def due(loaded: str) -> bool:
    """Return whether no description matches the loaded driver."""
    told = containers.described(LiveHost())
    return not told or not any(not versions or loaded in versions for versions in told.values())


def _describe(unit: str, tool: str, loaded: str, env: Dict[str, str]) -> None:
    """Have the unit write it now: by a restart, because a unit that stays active is not started a second time."""
    code, _out, error = process.output(["systemctl", "restart", unit], env, 120)
    if not code and due(loaded):  # its conditions prevented it: they look for the module where packages install it
        code, _out, error = process.output([tool, "cdi", "generate", "--output=" + PLACE], env)
    if code or due(loaded):
        raise HostFailure(
            "GS-490", "the container toolkit does not describe the GPUs (CDI)", f"driver {loaded} is loaded",
            error.strip()[-700:], "check: nvidia-ctk cdi generate; journalctl -u " + unit,
        )  # fmt: skip


def describe_again(layouts: Iterable[str], env: Dict[str, str]) -> bool:
    """Write the description again if it is older than the files with the GPUs' layouts, or than the removal of one;
    return whether that was done.
    """
    if not os.path.exists(PLACE) or os.stat(PLACE).st_mtime >= max(map(files.changed_at, layouts)):
        return False
    tool, loaded = process.which("nvidia-ctk", env), (modules.loaded_nvidia(LiveHost()) or {}).get("version")
    units = [
        unit for unit, seen in services.look((*REFRESH[1:], os.path.basename(UNIT)), env).items() if seen["exists"]
    ]
    if not (tool and loaded and units):
        return False
    _describe(units[0], tool, loaded, env)
    return True


def forget(check: bool, env: Dict[str, str]) -> List[str]:
    """Delete a description whose toolkit is gone: its hooks no longer exist, and it would stay until the next boot."""
    if process.which("nvidia-ctk", env) or not os.path.exists(PLACE):
        return []
    if not check:
        os.unlink(PLACE)
    return [PLACE]
