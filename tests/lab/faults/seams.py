"""Everything is cut, controller and host, at every seam of an apply: before each single thing that is asked of the host.

One undisturbed apply is led by the hand: before each connection the controller waits, the host is frozen, and both disks
are copied. Then each copy is brought to life in turn and the same command is given.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator

from tests.lab.applying import Answer
from tests.lab.faults.afterwards import known, leaves
from tests.lab.faults.row import Lab, Row, completes
from tests.lab.process import run

PREFIX = "cut "
POLLS = 3
"""So many seams of one task that only asks how far a long step is."""


def every_seam(report: Callable[[Row], None]) -> None:
    """One row per seam. A host that is cut boots again, so a reboot that was due has then happened.

    GPUSETUP_FAULT_SEAMS=-4: chooses some, as a Python slice does.
    """
    with Lab("seams") as lab:
        lab.host.break_packages("nvidia-smi", "sleep 3")  # some seams shall lie inside the package step
        seams = list(_copied(lab))
        lab.host.break_packages("nvidia-smi", "")
        ends = os.environ.get("GPUSETUP_FAULT_SEAMS", ":").split(":")
        chosen = slice(*(int(end) if end else None for end in ends))
        for number, label in list(enumerate(seams, 1))[chosen]:
            row, began = Row(f"{PREFIX}{number:02}: {label}"), time.monotonic()
            try:
                _cut_there(row, lab, number)
            except Exception as error:
                row.problems.append(f"{type(error).__name__}: {error}"[:300])
            row.seconds = time.monotonic() - began
            report(row)


def _cut_there(row: Row, lab: Lab, number: int) -> None:
    bring_back(lab, number)
    row.exit, row.after = "killed", lab.state()
    completes(row, lab)
    known(row, lab)
    leaves(row, lab)


def _copied(lab: Lab) -> Iterator[str]:
    """Lead one apply from seam to seam; a copy of both disks at each, and what the controller was about to do."""
    gate = lab.folder / "gate"
    gate.mkdir()
    answers: list[Answer] = []
    led = threading.Thread(target=lambda: answers.append(lab.apply(gate=gate)), daemon=True)
    led.start()
    seen: list[str] = []
    copies = 0
    while led.is_alive():
        for waiting in gate.glob("at-*"):
            label = _task(lab)
            if seen.count(label) < POLLS:
                copies += 1
                _copy(lab, copies)
                yield label + (f" ({seen.count(label) + 1})" if label in seen else "")
            seen.append(label)
            waiting.unlink()
        time.sleep(0.02)
    led.join()
    if answers[0].code != 0:
        raise AssertionError(f"the apply that was led ended with exit {answers[0].code}: {answers[0].err[-500:]}")


def _task(lab: Lab) -> str:
    """The task that has begun last."""
    for path in reversed(lab.events()):
        lines = [line for line in path.read_text(errors="replace").splitlines() if '"event": "begin"' in line]
        if lines:
            return str(json.loads(lines[-1])["name"])
    return "before the first task"


def _copy(lab: Lab, number: int) -> None:
    place = lab.folder / "seams" / str(number)
    place.mkdir(parents=True)
    lab.host.freeze()
    try:
        run(["cp", "-a", "--reflink=auto", lab.host.folder / "upper", place / "upper"], timeout=300)
    finally:
        lab.host.thaw()
    state = lab.folder / "state"
    if state.exists():
        run(["cp", "-a", state, place / "state"])


def bring_back(lab: Lab, number: int) -> None:
    """The host boots from that copy, and the controller knows what it knew then."""
    place, host = lab.folder / "seams" / str(number), lab.host
    host.power_cut()
    run(["umount", host.root])
    for name in ("upper", "work"):
        shutil.rmtree(host.folder / name)
    shutil.move(place / "upper", host.folder / "upper")
    (host.folder / "work").mkdir()
    host.mount_layers()
    host.break_packages("nvidia-smi", "")
    shutil.rmtree(lab.folder / "state", ignore_errors=True)
    if (place / "state").exists():
        shutil.move(place / "state", lab.folder / "state")
    host.power_on()
