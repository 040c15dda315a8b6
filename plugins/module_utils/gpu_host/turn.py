"""Our turn on this host: while it is measured it is not changed, and while it is changed it is not measured.

It is the lock that an apply takes, so neither has to know of the other. Signs of life go on for as long as the turn
lasts; a turn that was cut is over at once for the next one, by the process id in its name.
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
    """Own the host; refuse (GS-452) at once beside an owner that shows signs of life."""
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
    """Return the turn that is on record, when its process still lives."""
    now: Optional[Dict[str, Any]] = owner.present(folder)
    run = str((now or {}).get("run") or "")
    number = run.split("-")[1] if run.startswith("verify-") and run.count("-") == 2 else ""
    return [run] if number.isdigit() and os.path.isdir("/proc/" + number) else []
