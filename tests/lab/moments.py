"""Moments in the life of a lab host that tests and faults wait for, read from the files that a step itself writes."""

import contextlib
import json
import time
from collections.abc import Callable

from tests.lab.host import Host

JOBS = "/var/lib/gpusetup/jobs"


def package_step(host: Host) -> str:
    """How far the newest package job is, in its own word; "" when it has said none. A job tells it in `progress.json`."""
    told: list[tuple[float, str]] = []
    for path in host.path(JOBS).glob("packages-*/progress.json"):
        with contextlib.suppress(OSError, ValueError):
            progress = json.loads(path.read_text())
            told.append((progress["updated"], progress["step"]))
    return max(told, default=(0.0, ""))[1]


def installing(host: Host) -> bool:
    return package_step(host) == "install"


def until(reached: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait for it; that it never came is an error in words."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise AssertionError(f"within {seconds:.0f} s this did not happen: {what}")
        time.sleep(0.05)
