"""A driver that a `.run` file put there: its own uninstaller takes it away, packages do not own its files."""

import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import process
from .failure import HostFailure

_UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/local/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_LEFT_OVERS = (
    "/etc/modprobe.d/nvidia-installer-disable-nouveau.conf",
    "/usr/lib/modprobe.d/nvidia-installer-disable-nouveau.conf",
)


def uninstaller(env: Dict[str, str]) -> Optional[str]:
    """Return the uninstaller of a .run installation, None when there is none or a package owns it."""
    for path in _UNINSTALLERS:
        if os.access(path, os.X_OK):
            owners = (["dpkg-query", "-S", path], ["rpm", "-qf", path])
            return None if any(process.output(argv, env)[0] == 0 for argv in owners) else path
    return None


def remove(env: Dict[str, str], ledger: Any, tell: Callable[..., None], log: Callable[[str], None]) -> bool:
    """Take a .run installation away; this step has no way back, so it runs only when it was asked for by name."""
    path = uninstaller(env)
    if path is None:
        return False
    tell("runfile", "removing the .run installation with its own uninstaller")
    code, tail = run_uninstaller(env, log)
    if code or uninstaller(env):
        raise HostFailure(
            "GS-492",
            "the .run installation could not be removed",
            path,
            " | ".join(tail[-4:]),
            "see /var/log/nvidia-uninstall.log",
        )
    for left in _LEFT_OVERS:
        ledger.delete(left)
    if ledger.state["runfile"]:
        ledger.state["runfile"] = {}
        ledger.save()
    return True


def run_uninstaller(env: Dict[str, str], log: Callable[[str], None]) -> Tuple[int, List[str]]:
    """Run the uninstaller, if there is one; return its exit code and last lines."""
    path = uninstaller(env)
    if path is None:
        return 0, []
    argv = [path, "--silent"] + (["--uninstall"] if path.endswith("nvidia-installer") else [])
    return process.stream(argv, env, lambda _line: None, log=log)
