"""Waiting for others: cloud-init's own work and whoever holds the package manager, each with a deadline."""

from __future__ import annotations

import time
from pathlib import Path

from gpusetup.content import host_code
from gpusetup.model.status import Problem

__all__ = ["cloud_init_problem", "package_lock_problem", "wait_for_cloud_init", "wait_for_packages"]

_TICK = 1.0


def wait_for_packages(deadline: float, root: Path = Path("/"), tick: float = _TICK) -> Problem | None:
    """Wait until nobody works on packages."""
    locks = host_code("gpu_probe.locks")
    end = time.monotonic() + deadline
    while (held := locks.holder(str(root))) is not None:
        if time.monotonic() >= end:
            who = f"{held['command'] or 'another program'} (process {held['pid']})"
            return package_lock_problem(held["file"], who, deadline)
        time.sleep(tick)
    return None


def wait_for_cloud_init(deadline: float, run: Path = Path("/run/cloud-init"), tick: float = _TICK) -> Problem | None:
    """Wait until cloud-init has finished this boot; one that is absent or switched off is not waited for."""
    end = time.monotonic() + deadline
    while run.is_dir() and not (run / "result.json").exists() and not (run / "disabled").exists():
        if time.monotonic() >= end:
            return cloud_init_problem(deadline)
        time.sleep(tick)
    return None


def package_lock_problem(path: str, holder: str, deadline: float) -> Problem:
    """Say who is in the way."""
    return Problem(
        reference="GS-745",
        message=f"{holder} holds {path}; waited {deadline:.0f} s for it",
        hint="wait for it, or see what it is waiting for",
        exit=5,
    )


def cloud_init_problem(deadline: float) -> Problem:
    """Say that cloud-init does not end."""
    return Problem(
        reference="GS-746",
        message=f"cloud-init has not finished within {deadline:.0f} s",
        hint="see what it waits for: cloud-init status --long",
        exit=5,
    )
