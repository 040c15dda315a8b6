"""The part of the facts that decides whether a driver runs, can be loaded, or needs a reboot first."""

from typing import Any, Dict, Optional

from . import firmware, kernels, modules, sessions
from .host import LiveHost


def collect(host: LiveHost, simulated: Optional[LiveHost] = None) -> Dict[str, Any]:
    """Return the part of the facts that gpu_judge.driver reads."""
    kernel = kernels.collect(host)
    if simulated is not None:
        _stand_in_kernel(kernel, simulated)
    loaded = modules.loaded(host)
    firm = firmware.collect(simulated or host, host)
    return {
        "simulated": simulated is not None,
        "kernel": kernel,
        "modules": loaded,
        "module_users": modules.users(host),
        "driver": {"loaded": modules.loaded_nvidia(host)},
        "nouveau": {"loaded": modules.has_nouveau(loaded)},
        "secure_boot": firm.pop("secure_boot"),
        "firmware": firm,
        "processes": sessions.gpu_processes(host),
    }


def _stand_in_kernel(kernel: Dict[str, Any], simulated: LiveHost) -> None:
    """Use a kernel from the simulated host's own root, else the captured one; never the surrounding machine's."""
    own = [item["release"] for item in kernel["installed"]]
    captured = kernels.collect(simulated)
    if not any(item["image"] for item in kernel["installed"]):
        kernel["next"] = own[-1] if own else captured["next"]
        kernel["next_basis"] = "newest headers on the host" if own else "the captured machine's kernel"
    kernel["next_basis"] = "simulated: " + kernel["next_basis"]
    kernel["running"] = captured["running"] if captured["running"] in own else kernel["next"]
    kernel["compiler"] = kernels.compiler(simulated, kernel["next"]) if not own else kernel["compiler"]
