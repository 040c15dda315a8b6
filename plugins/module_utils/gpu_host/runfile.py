"""A driver that a `.run` file installed: no package owns its files, its own uninstaller removes them."""

import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import process
from .failure import HostFailure
from .journal import UNKNOWN, State, Thing

_UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/local/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_LEFT_OVERS = (
    "/etc/modprobe.d/nvidia-installer-disable-nouveau.conf",
    "/usr/lib/modprobe.d/nvidia-installer-disable-nouveau.conf",
)


def uninstaller(env: Dict[str, str]) -> Optional[str]:
    """Return the uninstaller of a .run installation, None without one or if a package owns it."""
    for path in _UNINSTALLERS:
        if os.access(path, os.X_OK):
            owners = (["dpkg-query", "-S", path], ["rpm", "-qf", path])
            return None if any(process.output(argv, env)[0] == 0 for argv in owners) else path
    return None


class Driver(Thing):
    """The driver of a `.run` file on this host; its value is the path of its uninstaller."""

    kind = "driver of the"
    section = "runfile"
    whole = True

    def __init__(self, env: Dict[str, str], log: Callable[[str], None]) -> None:
        super().__init__(".run installer")
        self.env = env
        self.log = log
        self.tail: List[str] = []

    def look(self) -> Optional[str]:
        return uninstaller(self.env)

    def make(self, wanted: Any) -> None:
        if wanted is not None:
            raise NotImplementedError
        code, self.tail = run_uninstaller(self.env, self.log)
        if code:
            raise self.failure(self.look(), None)

    def failure(self, now: Optional[str], _wanted: Any) -> HostFailure:
        return HostFailure(
            "GS-492",
            "the .run installation could not be removed",
            now or "",
            " | ".join(self.tail[-4:]),
            "see /var/log/nvidia-uninstall.log",
        )

    def aim(self, wanted: Any) -> str:
        return f"be {wanted}" if wanted else "go"

    def first(self, state: State) -> Any:
        """Report that there was none before us, as none could be restored."""
        return None if state[self.section] else UNKNOWN

    def forget(self, state: State) -> None:
        state[self.section] = {}


def remove(env: Dict[str, str], ledger: Any, tell: Callable[..., None], log: Callable[[str], None]) -> bool:
    """Remove a .run installation. This cannot be undone, so it is done only on explicit request."""
    driver = Driver(env, log)
    there = driver.look()
    if there is not None:
        tell("runfile", "removing the .run installation with its own uninstaller")
    known = bool(ledger.state["runfile"])
    ledger.undo(driver)
    if there is None:
        return False
    if not known:
        driver.make(None)
        if driver.look():
            raise driver.failure(driver.look(), None)
    for left in _LEFT_OVERS:
        ledger.delete(left)
    return True


def run_uninstaller(env: Dict[str, str], log: Callable[[str], None]) -> Tuple[int, List[str]]:
    path = uninstaller(env)
    if path is None:
        return 0, []
    argv = [path, "--silent"] + (["--uninstall"] if path.endswith("nvidia-installer") else [])
    return process.stream(argv, env, lambda _line: None, log=log)
