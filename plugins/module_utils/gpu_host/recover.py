"""Reset GPUs after an error, and record it; never while programs use them, nor one where all must be reset together.

Resets are recorded in `recoveries.json` in the state folder: they settle errors that the kernel log still has.
"""

import os
import time
from typing import Any, Dict, List, Sequence

from ..gpu_judge import driver
from ..gpu_judge import reset as judge
from ..gpu_probe import mig as mig_probe
from ..gpu_probe import pci, smi
from ..gpu_probe.host import LiveHost
from . import files, process
from .failure import HostFailure
from .gpu_users import who
from .ledger import Ledger
from .systemd import Stopped

Env = Dict[str, str]
FILE = "recoveries.json"
_KEPT = 100
_FABRIC_MANAGER = "nvidia-fabricmanager.service"


def reset(addresses: Sequence[str], env: Env, folder: str, check: bool = False) -> Dict[str, Any]:
    """Reset GPUs by their PCI addresses; return {"changed", "gpus", "left", "trouble"}: what the driver still asks for,
    and why a service that watches the GPUs did not start again.
    """
    run = process.smi(env)
    gpus = _gpus(env)
    for address in addresses:
        if address not in {gpu["address"] for gpu in gpus}:
            raise HostFailure(
                "GS-421", f"the GPU at {address} does not answer, so it cannot be reset",
                "nvidia-smi names {}".format(", ".join(gpu["address"] for gpu in gpus) or "none"),
                hint="reboot the host; when it is lost again after that, switch it off and on",
            )  # fmt: skip
    refused = judge.refusal(gpus, addresses, *_fabric(env))
    if refused is not None:
        raise HostFailure("GS-422", "a reset is not possible: " + refused[0], ", ".join(addresses),
                          "nothing was changed", refused[1])  # fmt: skip
    mine = [gpu for gpu in gpus if gpu["address"] in addresses]
    users = who(mine, env)
    if users:
        names = ", ".join(f"{command} ({pid})" for pid, command in users[:6])
        raise HostFailure(
            "GS-423", "programs use GPUs that need a reset: " + names, ", ".join(addresses),
            "gpusetup ends no program; nothing was changed",
            "end them, or wait for them (--drain, --busy-wait MINUTES), then run the same command again",
        )  # fmt: skip
    watchers = Stopped(driver.FOR_RESET, env, Ledger(folder, check))
    if not check:
        with watchers:
            answer = run(["--gpu-reset", "-i", ",".join(addresses)])
        if answer["rc"] != 0:
            words = " ".join((answer["out"] + answer["err"]).split())[:400]
            raise HostFailure("GS-424", "nvidia-smi could not reset the GPU", ", ".join(addresses), words,
                              "reboot the host; on a virtual machine its owner may have to")  # fmt: skip
    left = {} if check else _left(addresses)
    return {"changed": True, "gpus": list(addresses), "left": left, "trouble": watchers.trouble or ""}


def _gpus(env: Env) -> List[Dict[str, Any]]:
    """Return the properties of each responding GPU that decide about a reset."""
    run = process.smi(env)
    told = mig_probe.look(run)
    if told is None:
        raise HostFailure("GS-421", "nvidia-smi does not answer, so no GPU can be reset",
                          hint="reboot the host; gpusetup doctor finds the cause")  # fmt: skip
    capabilities = {}
    for line in run(["--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader"])["out"].splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 2:
            capabilities[cells[0].lower()[-12:]] = cells[1]
    links = smi.nvlinks(LiveHost(), True)
    return [
        {
            "address": gpu["address"],
            "uuid": gpu["uuid"],
            "capability": capabilities.get(gpu["address"]),
            "links": (links.get(gpu["uuid"]) or {}).get("up", 0),
            "instances": gpu["instances"],
        }
        for gpu in told
    ]


def _fabric(env: Env) -> Any:
    """Return whether NVSwitches are present, and whether the fabric manager runs."""
    host = LiveHost()
    there = pci.nvswitch(host, pci.collect(host)["nvswitches"]) is not None
    active = process.output(["systemctl", "is-active", "--quiet", _FABRIC_MANAGER], env, 30)[0] == 0
    return there, active


def _left(addresses: Sequence[str]) -> Dict[str, str]:
    told = smi.recovery_asked(LiveHost(), "nvidia-smi")
    asks = {address: told.get(address, {}).get("action") for address in addresses}
    return {address: action for address, action in asks.items() if action not in (None, "None")}


def record_recovery(folder: str, done: Dict[str, Any]) -> None:
    """Record a recovery (`action`, `gpus`, `why`, `outcome`, `who`) with the time and the uptime."""
    path = os.path.join(folder, FILE)
    kept = files.read_json(path)
    entry = dict(
        done,
        time=time.time(),
        uptime=float((files.read_text("/proc/uptime") or "0").split()[0]),
        boot=(files.read_text(smi.BOOT_ID) or "").strip(),
    )
    files.write_json(path, [*(kept if isinstance(kept, list) else []), entry][-_KEPT:])
