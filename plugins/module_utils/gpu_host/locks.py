"""Wait for other users of the package manager."""

import time
from typing import Callable

from ..gpu_probe import locks
from .failure import HostFailure


def wait_until_free(seconds: float, tell: Callable[..., None]) -> None:
    """Wait until nobody holds the package manager's lock, reporting the holder meanwhile; fail on timeout."""
    deadline = time.monotonic() + seconds
    while True:
        found = locks.holder()
        if not found:
            return
        who = "process {pid} ({command})".format(**found)
        if time.monotonic() > deadline:
            raise HostFailure(
                "GS-453",
                "another program holds the package manager's lock",
                who,
                f"waited {int(seconds)} s",
                "wait for it (automatic upgrades at first boot take minutes), then run the same command again",
            )
        tell("lock", "waiting for the package manager's lock, held by " + who)
        time.sleep(1)
