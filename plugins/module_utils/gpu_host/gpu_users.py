"""Which programs use a GPU, without NVIDIA's own services."""

import os
import re
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

from ..gpu_judge import driver
from ..gpu_probe import sessions
from . import files, process
from .failure import HostFailure

PROC = "/proc"
_MOMENT = 5
"""How many seconds a program that ends soon gets, such as a call of nvidia-smi."""
Seen = TypeVar("Seen")


def who(gpus: Sequence[Dict[str, Any]], env: Dict[str, str]) -> List[Tuple[int, str]]:
    """Return the processes on these GPUs: those with open device files, and those that nvidia-smi lists."""
    found = dict(_holders(_minors(gpus)))
    query = ["nvidia-smi", "--query-compute-apps=gpu_bus_id,pid,process_name", "--format=csv,noheader"]
    for line in process.output(query, env)[1].splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        mine = [gpu for gpu in gpus if cells[0].lower().endswith(gpu["address"])]
        if len(cells) == 3 and cells[1].isdigit() and mine:
            found.setdefault(int(cells[1]), os.path.basename(cells[2]))
    return sorted((pid, name) for pid, name in found.items() if not name.startswith(driver.PROCESSES))


def settled(look: Callable[[], Seen], may_end: Callable[[Seen], bool]) -> Seen:
    """Look until what is seen is nothing that may end in a moment, and return it."""
    seen = look()
    for _second in range(_MOMENT):
        if not may_end(seen):
            break
        time.sleep(1)
        seen = look()
    return seen


def refuse_busy(gpus: Sequence[Dict[str, Any]], env: Dict[str, str], reference: str, which: str) -> None:
    """Fail before any change while a program uses one of these GPUs; one that ends in a moment may end."""
    users = settled(lambda: who(gpus, env), lambda found: {name for _pid, name in found} == {driver.BRIEF})
    if users:
        names = ", ".join(f"{command} ({pid})" for pid, command in users[:6])
        raise HostFailure(
            reference, f"programs use GPUs {which}: {names}", ", ".join(gpu["address"] for gpu in gpus),
            "gpusetup ends no program; nothing was changed",
            "end them, or wait for them (--drain, --busy-wait MINUTES), then run the same command again",
        )  # fmt: skip


def _minors(gpus: Sequence[Dict[str, Any]]) -> Optional[List[str]]:
    """Return the numbers of the GPUs' device files; None if the driver does not report them."""
    numbers = []
    for gpu in gpus:
        text = files.read_text("{}/driver/nvidia/gpus/{}/information".format(PROC, gpu["address"]))
        if text is None:
            return None
        match = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if match:
            numbers.append(match.group(1))
    return numbers


def _holders(minors: Optional[List[str]]) -> List[Tuple[int, str]]:
    device = re.compile(r"^/dev/nvidia({})$".format("|".join(minors) if minors is not None else r"\d+"))
    return [(found["pid"], found["command"]) for found in sessions.holding(device, PROC)[0]]
