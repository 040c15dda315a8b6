"""The host or the way to it goes away: cut, hanging, without power, never back; and the controller killed at every step."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.lab import fleet
from tests.lab.faults.row import Lab, Row, completes, judged, said
from tests.lab.spec import HostSpec

STEPS = (
    "Look at the host", "Look before touching", "Is the host as wanted already",
    "Repositories, each with its proven key", "One transaction for all packages of the stack",
    "Keep nouveau off the GPU", "Configure and load the module", "Keep the driver initialised", "Is a reboot needed",
    "Record what was done", "Record what the verification found",
)  # fmt: skip


def ssh_cut(row: Row) -> None:
    with Lab("ssh-cut") as lab:
        lab.host.break_packages("nvidia-smi", "sleep 8")
        answer = lab.apply_until(lab.installing, lambda _pid: lab.host.cut_network())
        lab.host.restore_network()
        judged(row, lab, answer, 6)
        completes(row, lab)


def power_cut(package: str, how: str) -> Callable[[Row], None]:
    def run(row: Row) -> None:
        with Lab(f"power-{package}") as lab:
            lab.host.break_packages(package, how)
            answer = lab.apply_until(lab.installing, lambda _pid: (time.sleep(3), lab.host.power_cut()))
            lab.host.break_packages(package, "")
            lab.host.power_on()
            judged(row, lab, answer, 6)
            completes(row, lab)

    return run


def never_answers(row: Row) -> None:
    """The host is well, but no Python on it begins, which the look needs."""
    with Lab("blocks") as lab:
        lab.variables = {"gpu_facts_timeout": "20"}
        lab.write()
        blocks = lab.host.path("/usr/lib/python3/dist-packages/blocks.pth")
        blocks.write_text("import time; time.sleep(3600)\n")
        judged(row, lab, lab.apply(), 5, "GS-309", unchanged=True)
        blocks.unlink()
        completes(row, lab)


def one_hangs(row: Row) -> None:
    """One of many hosts hangs in the middle of dpkg: the others finish, and it is named."""
    others = int(os.environ.get("GPUSETUP_FAULT_HOSTS", "20")) - 1
    names = [f"fault-beside-{os.getpid()}-{number}" for number in range(others)]
    with Lab("hangs") as lab, ExitStack() as after:
        after.callback(fleet.down, names)
        after.callback(lab.host.thaw)
        beside = fleet.up([HostSpec(name=name, flavour="debian12", machine="t4") for name in names])
        lab.write(extra="\n".join(f"{host.name} ansible_host={host.address}" for host in beside))
        lab.host.break_packages("nvidia-smi", "sleep 8")
        answer = lab.apply_until(lab.installing, lambda _pid: lab.host.freeze(), deadline=1200)
        lab.host.thaw()
        judged(row, lab, answer, 6)
        states = {name: outcome["state"] for name, outcome in answer.hosts.items()}
        done = [name for name in names if states.get(name) == "done"]
        row.saw = f"{len(done)} of {others} others done; the hanging one {states.get(lab.host.name)}: {row.saw}"
        if len(done) != others or states.get(lab.host.name) == "done":
            row.problems.append(f"states: {sorted(set(states.values()))}")
        completes(row, lab)


def controller_killed(report: Callable[[Row], None]) -> None:
    """SIGKILL at every step, one after the other on one host, always the same command; then it completes."""
    with Lab("kill", machine="t4") as lab:
        for step in STEPS:
            row = Row(killed_at(step))
            began = time.monotonic()
            try:
                answer = lab.apply_until(lab.at(step), kill_tree)
                row.exit, row.after = "killed", lab.state()
                row.must(answer.code == -signal.SIGKILL, f"exit {answer.code} instead of a kill")
            except AssertionError as error:
                row.exit, row.after, row.again = "not killed", lab.state(), str(error)
                row.problems.append(str(error))
            if step == STEPS[-1]:
                completes(row, lab)
                final = lab.apply()
                row.again += f"; once more: {said(final)}"
            row.seconds = time.monotonic() - began
            report(row)


def kill_tree(pid: int) -> None:
    """The controller and everything that it started, by their ids: what a lost machine looks like to its hosts."""
    family = [pid]
    for parent in family:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                family += [int(word) for word in task.read_text().split()]
    for one in reversed(family):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def killed_at(step: str) -> str:
    return f"killed at “{step}”"
