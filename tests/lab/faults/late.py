"""Cut when most of the work is done, or inside the package step: what is unfinished must be finished, and known."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab import network
from tests.lab.faults.afterwards import known, leaves, lives_on
from tests.lab.faults.machine import kill_tree
from tests.lab.faults.row import Lab, Row, completes, judged
from tests.lab.places import SIMULATED_ROOT


def killed_in_the_reboot(row: Row) -> None:
    """The controller is gone when the host has just come up again with its new driver."""
    with Lab("kill-reboot") as lab:
        booted = lab.host.path(SIMULATED_ROOT) / "proc/modules"
        first = booted.stat().st_mtime
        answer = lab.apply_until(lambda: booted.exists() and booted.stat().st_mtime > first, kill_tree)
        lab.host.wait()
        row.exit, row.saw, row.after = "killed", "nothing more", lab.state()
        row.must(answer.code == -signal.SIGKILL, f"exit {answer.code} instead of a kill")
        completes(row, lab)
        lives_on(row, lab)


def back_too_late(row: Row) -> None:
    """The reboot begins, the controller's patience ends, and the host comes back some time later."""
    with Lab("late") as lab:
        lab.variables = {"gpu_reboot_timeout": "60"}
        lab.write()
        lab.host.lose_at_reboot()
        answer = lab.apply()
        while_away = lab.apply()
        lab.host.lose_at_reboot(lost=False)
        lab.host.power_on()
        judged(row, lab, answer, 7, "did not come back from its reboot")
        row.must(while_away.code == 6, f"the same command while the host is away: exit {while_away.code}")
        completes(row, lab)
        lives_on(row, lab)


def killed_on_the_host(program: str, code: int) -> Callable[[Row], None]:
    """Somebody, or the kernel out of memory, kills one program of the package step; another job takes over from ours."""

    def run(row: Row) -> None:
        with Lab(f"kill-{program}") as lab:
            lab.host.break_packages("nvidia-smi", "sleep 8")
            started = lambda: lab.installing() and bool(_running(lab, program))  # noqa: E731
            answer = lab.apply_until(started, lambda _pid: _kill(lab, program))
            lab.host.break_packages("nvidia-smi", "")
            judged(row, lab, answer, code)
            completes(row, lab)
            known(row, lab)
            leaves(row, lab)

    return run


def _running(lab: Lab, program: str) -> list[int]:
    """The processes of the host by that name, the oldest first; of Python the job, not a task that waits for news."""
    found = []
    for pid in network.processes(lab.host.name):
        with contextlib.suppress(OSError):
            name, parent = re.findall(r"\((.*)\) . (\d+)", Path(f"/proc/{pid}/stat").read_text())[0]
            left = Path(f"/proc/{parent}/comm").read_text().strip() == "systemd"
            if name == program and (left or program != "python3"):
                found.append(pid)
    return sorted(found)


def _kill(lab: Lab, program: str) -> None:
    time.sleep(1)  # some way into the step
    for pid in _running(lab, program):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
