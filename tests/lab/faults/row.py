"""One row of the table, and the host that it is tried on."""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.applying import Answer, gpusetup
from tests.lab.host import SSH_COMMON, Host
from tests.lab.moments import installing
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.plays import packages
from tests.lab.repository.build import ready
from tests.lab.spec import HostSpec

COMPLETE = (0,)
AS_BEFORE = "as before"


@dataclass
class Row:
    fault: str
    exit: str = ""
    saw: str = ""
    after: str = ""
    again: str = ""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    commit: str = ""

    def must(self, held: object, problem: str) -> None:
        """Note a problem unless this held."""
        self.problems += [] if held else [problem]


class Lab:
    """One host, its inventory and the command, for one row."""

    def __init__(self, name: str, base: str = "", **spec: Any) -> None:
        self.repositories = ready()
        words = {"flavour": "debian12", "machine": "t4", **spec}
        self.host = Host.create(HostSpec(name=f"fault-{name}-{os.getpid()}"[-40:].strip("-"), **words))
        self.folder = Path(tempfile.mkdtemp(prefix="gpusetup-fault-"))
        self.inventory = self.folder / "inventory.ini"
        self.base = base or self.repositories.base
        self.variables: dict[str, str] = {}
        """What this fault says in the inventory beside, or in place of, what every fault says."""
        self.write()
        self.before = packages(self.host)

    def write(self, user: str = "root", extra: str = "") -> None:
        variables = {
            "ansible_user": user, "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(SSH_KEY), "ansible_ssh_common_args": SSH_COMMON,
            "gpusetup_simulated_root": SIMULATED_ROOT, "gpusetup_source": self.base,
            "gpusetup_source_fingerprints": self.repositories.fingerprint,
            "gpusetup_source_key": f"{self.repositories.base}/lab-key.asc", "gpusetup_components": '["driver"]',
            "gpusetup_driver": "580.*", **self.variables,
        }  # fmt: skip
        lines = [f"[lab]\n{self.host.name} ansible_host={self.host.address}\n{extra}\n[lab:vars]"]
        self.inventory.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in variables.items())]) + "\n")

    def apply(self, *words: str, stdin: str | None = None, gate: Path | None = None) -> Answer:
        return self.command("apply", *words, stdin=stdin, gate=gate)

    def command(self, name: str, *words: str, stdin: str | None = None, gate: Path | None = None) -> Answer:
        argv = (name, self.inventory, "--format", "json", *words)
        return gpusetup(self.folder, *argv, timeout=2400, stdin=stdin, gate=gate)

    def apply_until(self, reached: Callable[[], bool], act: Callable[[int], None], deadline: float = 300) -> Answer:
        """Run the command, and do something to it or its host once a moment is reached."""
        acted, ended = threading.Event(), threading.Event()

        def wait() -> None:
            until = time.monotonic() + deadline
            while time.monotonic() < until and not ended.is_set():
                if reached():
                    acted.set()
                    act(self.controller())
                    return
                time.sleep(0.1)

        watcher = threading.Thread(target=wait, daemon=True)
        watcher.start()
        answer = self.apply()
        ended.set()
        watcher.join(30)
        if not acted.is_set():
            raise AssertionError("the moment for the fault never came")
        return answer

    def controller(self) -> int:
        """The process of our own command, known by its inventory."""
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (place / "cmdline").read_bytes().split(b"\0")
                if b"gpusetup" in words and str(self.inventory).encode() in words:
                    return int(place.name)
        raise AssertionError("the command has ended already")

    def at(self, task: str) -> Callable[[], bool]:
        """True once that task has begun in the newest run."""
        known = {path.parent.name for path in self.events()}

        def reached() -> bool:
            for path in self.events():
                if path.parent.name not in known:
                    with contextlib.suppress(OSError):
                        lines = path.read_text(errors="replace").splitlines()
                        if any('"event": "begin"' in line and f'"name": "{task}"' in line for line in lines):
                            return True
            return False

        return reached

    def events(self) -> list[Path]:
        return sorted(self.folder.glob("state/runs/*/events.jsonl"))

    def installing(self) -> bool:
        return installing(self.host)

    def state(self) -> str:
        now = packages(self.host)
        more = len(set(now) - set(self.before))
        text = AS_BEFORE if now == self.before else f"{more} packages more"
        audit = self.host.ssh("dpkg", "--audit", check=False).stdout.strip()
        return text + (", dpkg half way" if audit else "")

    def __enter__(self) -> "Lab":  # noqa: PYI034 - Self is younger
        return self

    def __exit__(self, *_how: object) -> None:
        self.host.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)


def said(answer: Answer) -> str:
    """The line that tells a person what happened."""
    try:
        document = answer.document
    except ValueError:
        return (answer.err.strip().splitlines() or [""])[-1][:160]
    if "error" in document:
        return f"{document['error']['message']} [{document['error']['reference']}]"
    for outcome in document["hosts"].values():
        failure = outcome.get("failure") or next(iter(outcome.get("refusals") or ()), None)
        if failure:
            reference = f" [{failure['reference']}]" if failure.get("reference") else ""
            why = f"{failure['message']}: {failure['note']}" if failure.get("note") else str(failure["message"])
            return " ".join(why.split())[:240] + reference
        return str(outcome["state"]) + (f": {'; '.join(outcome['pending'])}" if outcome.get("pending") else "")
    return ""


def judged(row: Row, lab: Lab, answer: Answer, code: int, names: str = "", *, unchanged: bool = False) -> None:
    """Fill the row from the run under the fault, which ends in one way only: `names` is in what a person reads, as a
    reference is that no other failure has."""
    row.exit, row.saw, row.after = str(answer.code), said(answer), lab.state()
    row.must(answer.code == code, f"exit {answer.code}, expected {code}")
    row.must(names in row.saw, f"this does not name the fault, which is {names}")
    row.must(not (unchanged and row.after != AS_BEFORE), "packages changed although it was refused")
    _no_traceback(row, answer)


def completes(
    row: Row, lab: Lab, codes: tuple[int, ...] = COMPLETE, *, words: tuple[str, ...] = (), stdin: str | None = None
) -> None:
    """The same command once the fault is gone."""
    again = lab.apply(*words, stdin=stdin)
    row.again = f"exit {again.code}: {said(again)}" if again.code else said(again)
    _no_traceback(row, again)
    row.must(again.code in codes, f"the same command again: exit {again.code}: {said(again)}")
    if codes == COMPLETE:
        row.must(not lab.host.ssh("dpkg", "--audit", check=False).stdout.strip(), "dpkg is half way at the end")
        row.must("580" in lab.host.ssh("nvidia-smi", check=False).stdout, "the driver does not answer at the end")


def _no_traceback(row: Row, answer: Answer) -> None:
    end = " / ".join(answer.err.strip().splitlines()[-4:])[:300]
    row.must("Traceback" not in answer.err + answer.out, f"a traceback: {end}")
