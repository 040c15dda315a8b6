"""A process that stops when the one that started it is killed: an orphan would meet the next run on the hosts."""

from __future__ import annotations

import ctypes
import os
import signal

ENVIRONMENT = "GPUSETUP_PID"
"""Whose child it is."""
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> bool:
    """Be stopped, as by Ctrl-C, when the parent ends; tell whether it still lives."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    return os.getppid() == int(os.environ.get(ENVIRONMENT, os.getppid()))
