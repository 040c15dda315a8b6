"""A lasting MIG layout: recorded with the earlier one, restored at boot, undone by removal."""

import json
import os
import sys
from typing import Any, Dict, List, Mapping, Sequence

from ..gpu_probe import mig as probe
from . import cdi, mig, params, process, services, systemd
from .failure import HostFailure
from .journal import UNKNOWN, State, Thing
from .ledger import Ledger

LAYOUT = "/etc/gpusetup/mig.json"
FOLDER = "/usr/local/lib/gpusetup/mig"
UNIT = "/etc/systemd/system/gpusetup-mig.service"
MANAGER = "nvidia-mig-manager.service"
MANAGER_CONFIG = "/etc/nvidia-mig-manager/gpusetup.yaml"
MANAGER_DROP_INS = "/etc/systemd/system/nvidia-mig-manager.service.d"
_PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
_UNIT = """# Written by gpusetup: MIG instances do not outlive a reboot.
[Unit]
Description=MIG layout of the GPUs, as gpusetup left it
After=nvidia-persistenced.service nvidia-fabricmanager.service systemd-modules-load.service
Before=nvidia-gpu-reset.target nvidia-dcgm.service dcgm-exporter.service nvidia-dcgm-exporter.service
Before=nvidia-cdi-refresh.service gpusetup-cdi.service
Before=docker.service containerd.service crio.service kubelet.service slurmd.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=480
ExecStart={python} -B {folder}/mig_at_boot.py {layout}

[Install]
WantedBy=multi-user.target
"""
_SIGNED = "# Written by gpusetup: part of what gpusetup-mig.service runs.\n"


def lay(
    ledger: Ledger, wishes: mig.Layouts, order: Sequence[str], env: mig.Env, check: bool, *, program: str
) -> Dict[str, Any]:
    """Give the GPUs their layouts, now or at the next boot, and record them; return {"changed", "made", "reboot"}.

    `order` has the addresses of all of the host's GPUs in the driver's order; `program` is the packed program that
    restores a layout at boot. A GPU that is no longer requested gets its layout from before the first apply.
    """
    if not wishes and not ledger.state["mig"]:
        return {"changed": False, "made": {}, "reboot": []}
    everything = dict(_known(ledger), **wishes)
    layouts = Layouts(everything, wishes, env, ledger)
    changed = ledger.change(layouts, everything)
    made = {address: layouts.result["made"][address] for address in wishes}
    kept = keep(ledger, made, order, env, check, program=program)
    described = not check and cdi.describe_again([MANAGER_CONFIG if os.path.exists(MANAGER_CONFIG) else LAYOUT], env)
    return {"changed": changed or kept or described, "made": made, "reboot": layouts.result["reboot"]}


class Layouts(Thing):
    """The layouts of some GPUs by address; `asked` are those requested now."""

    kind = "MIG layouts of"
    section = "mig"
    whole = True

    def __init__(self, everything: mig.Layouts, asked: mig.Layouts, env: mig.Env, ledger: Ledger) -> None:
        super().__init__("GPUs")
        self.everything, self.asked, self.env, self.ledger = everything, asked, env, ledger
        self.result: Dict[str, Any] = {}

    def look(self) -> Dict[str, Any]:
        """Return the present layouts; without a responding driver, the unit sets them at the next boot."""
        if probe.look(process.smi(self.env)) is None:
            self.result = {"changed": False, "found": {}, "made": dict(self.everything), "reboot": []}
        else:
            self.result = mig.lay(self.everything, self.env, check=True)
        return dict(self.result["found"])

    def fits(self, _now: Any, _wanted: Any) -> bool:
        """Return what `look` found: requested layouts have no places to compare with yet."""
        return not self.result["changed"]

    def make(self, wanted: mig.Layouts) -> None:
        self.done = mig.lay(wanted, self.env, record=self.ledger)

    def came_about(self, now: Any, wanted: Any) -> bool:
        """Return whether it took effect; what waits for a reboot counts."""
        fits = self.fits(now, wanted)
        self.result = self.done
        return fits or bool(self.done["reboot"])

    def failure(self, _now: Any, _wanted: Any) -> HostFailure:
        return HostFailure("GS-437", "the GPUs do not have the layout that gpusetup set", hint="nvidia-smi mig -lgi")

    def aim(self, _wanted: Any) -> str:
        return "get another layout"

    def first(self, state: State) -> Any:
        return state[self.section].get("found") or UNKNOWN

    def note(self, state: State, before: Dict[str, Any], _wanted: Any) -> None:
        found = state[self.section].get("found") or {}
        for address in self.everything:
            found.setdefault(address, before.get(address))
        state[self.section] = dict(state[self.section], found=found)

    def settle(self, state: State, _wanted: Any) -> None:
        """Remove GPUs that nobody requests any more from the record."""
        found = {address: state[self.section]["found"][address] for address in self.asked}
        made = {address: self.result["made"][address] for address in self.asked}
        state[self.section] = {"found": found, "wanted": made} if self.asked else {}

    def forget(self, state: State) -> None:
        state[self.section] = {}

    def back(self, _now: Any, _first: Any) -> mig.Layouts:
        return self.everything


def keep(ledger: Ledger, made: mig.Layouts, order: Sequence[str], env: mig.Env, check: bool, *, program: str) -> bool:
    """Have the layouts restored at every boot, by NVIDIA's own unit if it exists; return whether that changed it."""
    theirs = services.look([MANAGER], env)[MANAGER]["exists"]
    files = (_of_manager(made, order) if theirs else _of_ours(made, program)) if made else {}
    mine = (LAYOUT, FOLDER + "/", UNIT, MANAGER_CONFIG, MANAGER_DROP_INS + "/")
    unit, other = (MANAGER, os.path.basename(UNIT)) if theirs else (os.path.basename(UNIT), MANAGER)
    going = [name for name in ([other] if made else [unit, other]) if name in ledger.state["services"]]
    changed = bool(services.take_down(ledger, env, going))
    changes = ledger.arrange(files, lambda path: path.startswith(mine))
    if not check:
        systemd.read_again([MANAGER, os.path.basename(UNIT)], env)
    # It only has to run at boot: the GPUs are divided already.
    return (services.bring_up(ledger, [unit], False, env) if made else False) or changed or bool(changes)


def _of_ours(made: Mapping[str, Any], program: str) -> Dict[str, str]:
    python = next((path for path in _PYTHONS if os.path.exists(path)), sys.executable)
    files = {
        LAYOUT: json.dumps(made, indent=1, sort_keys=True) + "\n",
        UNIT: _UNIT.format(folder=FOLDER, python=python, layout=LAYOUT),
    }
    files.update({f"{FOLDER}/{place}": _SIGNED + text for place, text in params.program(program).items()})
    return files


def _of_manager(made: Mapping[str, Any], order: Sequence[str]) -> Dict[str, str]:
    """Return the files for NVIDIA's unit. It rewrites override.conf itself, with exactly these words, so the path of
    our layouts is set in another file.
    """
    lines = ["# Written by gpusetup", "version: v1", "mig-configs:", "  gpusetup:"]
    for address, layout in sorted(made.items()):
        enabled = "true" if layout["enabled"] else "false"
        lines += [f"    - devices: [{list(order).index(address)}]", "      mig-enabled: " + enabled]
        devices = [name for item in layout["instances"] for name in item["compute"] or [item["profile"]]]
        counted = [f'"{name}": {devices.count(name)}' for name in dict.fromkeys(devices)]
        lines.append("      mig-devices: {{{}}}".format(", ".join(counted)))
    return {
        MANAGER_CONFIG: "\n".join(lines) + "\n",
        MANAGER_DROP_INS + "/override.conf": '[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=gpusetup"\n',
        MANAGER_DROP_INS + "/zz-gpusetup.conf": "# Written by gpusetup\n[Service]\n"
        f'Environment="MIG_PARTED_CONFIG_FILE={MANAGER_CONFIG}"\n',
    }


def undo(ledger: Ledger, env: mig.Env) -> List[str]:
    """Before the driver goes: give the GPUs their layouts from before the first apply; return those that changed.

    A driver that does not respond holds no instances any more.
    """
    layouts = on_record(ledger, env)
    return [f"MIG layout of {address}" for address in sorted(layouts.everything)] if ledger.undo(layouts) else []


def on_record(ledger: Ledger, env: mig.Env) -> Layouts:
    """Return the layouts before the first apply."""
    return Layouts(_known(ledger), {}, env, ledger)


def _known(ledger: Ledger) -> mig.Layouts:
    """Return the layouts before the first apply; a GPU whose driver did not answer then keeps its present one."""
    found: Dict[str, Any] = ledger.state["mig"].get("found") or {}
    return {address: layout for address, layout in found.items() if layout}
