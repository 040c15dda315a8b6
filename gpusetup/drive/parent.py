"""Stop a process when its parent is killed: an orphan would collide with the next run on the hosts."""

import ctypes
import os
import signal

ENVIRONMENT = "GPUSETUP_PID"
"""Holds the process id of the parent."""
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> bool:
    """Have the kernel send SIGINT when the parent ends; return whether it is still alive."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    return os.getppid() == int(os.environ.get(ENVIRONMENT, os.getppid()))
