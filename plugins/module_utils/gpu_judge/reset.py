"""Judge whether GPUs may be reset, by the rules of nvidia-smi's manual on --gpu-reset."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

AMPERE = 8
Refusal = Tuple[str, str]
"""The obstacle, and what to do about it."""


def refusal(
    gpus: Sequence[Dict[str, Any]], chosen: Sequence[str], nvswitch: bool, fabric_manager: Optional[bool]
) -> Optional[Refusal]:
    """Return why the chosen GPUs of a host may not be reset; None when they may.

    Each GPU has `address`, `capability` (None: unknown), `links` (NVLinks that are up) and `instances` (of MIG).
    """
    mine = [gpu for gpu in gpus if gpu["address"] in chosen]
    cut = [gpu["address"] for gpu in mine if gpu["instances"]]
    if cut:
        return (
            "MIG instances do not outlive a reset, and there are some on {}".format(", ".join(cut)),
            "when no program uses them: nvidia-smi mig -dci; nvidia-smi mig -dgi; afterwards: gpusetup apply",
        )
    linked = [gpu["address"] for gpu in gpus if gpu["links"]]
    left = [address for address in linked if address not in chosen]
    if not left or not any(gpu["links"] for gpu in mine):
        return None
    why = _together(mine, nvswitch, fabric_manager)
    if why is None:
        return None
    return (
        "{}: all GPUs with NVLink must be reset together, and {} would be left out".format(why, ", ".join(left)),
        "when nothing runs on any of them: sudo nvidia-smi --gpu-reset; or reboot the host",
    )


def _together(mine: Sequence[Dict[str, Any]], nvswitch: bool, fabric_manager: Optional[bool]) -> Optional[str]:
    """Return why GPUs that NVLink connects cannot be reset one by one; None when they can."""
    if nvswitch and not fabric_manager:
        return "the GPUs hang on NVSwitches and the fabric manager does not run"
    old: List[str] = [gpu["address"] for gpu in mine if gpu["links"] and _major(gpu["capability"]) < AMPERE]
    if old:
        return "{} is older than Ampere, or does not report its generation".format(", ".join(old))
    return None


def _major(capability: Optional[str]) -> int:
    head = (capability or "").partition(".")[0]
    return int(head) if head.isdigit() else 0
