"""Exclusive use of this host for a measurement: no apply runs while it is measured, and the other way round.

It takes the lock that an apply takes. Signs of life continue for as long as it lasts. The process ID in its name shows
the next caller at once that a killed measurement is over.
"""

import contextlib
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from . import owner

FOLDER = "/var/lib/gpusetup"
_HOME = "measures"


@contextlib.contextmanager
def taken(folder: str, controller: str = "") -> Iterator[None]:
    """Own the host for the duration; fail at once (GS-452) if a live owner holds it."""
    who: Dict[str, Any] = {
        "controller": controller or os.uname()[1],
        "user": "",
        "run": f"verify-{os.getpid()}-{int(time.time())}",
        "home": _HOME,
        "alive": _alive(folder),
    }
    token = owner.take(folder, who, "", patience=-1.0)
    over = owner.show_life(folder, token)
    try:
        yield
    finally:
        over.set()
        owner.release(folder, token)


def _alive(folder: str) -> List[str]:
    now: Optional[Dict[str, Any]] = owner.present(folder)
    run = str((now or {}).get("run") or "")
    number = run.split("-")[1] if run.startswith("verify-") and run.count("-") == 2 else ""
    return [run] if number.isdigit() and os.path.isdir("/proc/" + number) else []
