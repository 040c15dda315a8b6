"""Faults on virtual machines, one by one, during a first boot: how it ended, what a person saw, and whether one more boot changes it.

`./dev test vm-faults` runs them all, one machine at a time, and writes docs/reference/vm-faults.md; `python -m tests.vm.faults WORD…`
runs those whose name holds a word and writes their rows anew. Stand-in packages, a simulated GPU, everything else is real.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.lab.bootstrapping import ROOT, UNIT, serve_bundle, user_data
from tests.lab.faults.page import clean
from tests.lab.places import LabError
from tests.lab.repository.build import ready, set_fault
from tests.vm.boots import again, boots, wait_for_end
from tests.vm.machine import VirtualMachine, prepare

PAGE = ROOT / "docs" / "reference" / "vm-faults.md"
TO_THE_END = 1800.0
TOKEN = "vmmirror"
FAULTS_INSIDE = "/var/lib/gpusetup-lab/faults"


def recorded(state: str) -> str:
    return f"""grep -qE '"state": ?"{state}"' /var/lib/gpusetup/status.json"""


MOMENTS = {
    "installing": "[ -x /opt/gpusetup-controller/bin/python ]", "applying": recorded("applying"),
    "package": "grep -q 'half-configured nvidia-kernel-support' /var/log/dpkg.log", "build": "pgrep -x cc1",
}  # fmt: skip
"""In the order in which a first boot comes to them."""
FILL = 'avail=$(df --output=avail -B1 / | tail -n 1); fallocate -l "$avail" /filler; df --output=avail -k / | tail -n 1'
HOLD = (
    "import fcntl,time\nf=open('/var/lib/dpkg/lock-frontend','r+b')\nfcntl.lockf(f,fcntl.LOCK_EX)\n"
    "import os\nwhile not os.path.exists('/run/let-go'): time.sleep(1)\n"
)


@dataclass
class Row:
    fault: str
    outcome: str = ""
    saw: list[str] = field(default_factory=list)
    reboots: str = ""
    again: str = ""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Machine:
    """One machine on its first boot, kept at each moment where harm can be done; rows go on from there."""

    def __init__(self) -> None:
        self.repositories = ready().with_fault(TOKEN, "")
        self.bundle = serve_bundle()
        self.text = user_data(self.bundle, self.repositories)
        self.host = VirtualMachine.make(f"vm-faults-{os.getpid()}", self.text)
        self.kept: list[str] = []

    def at(self, moment: str) -> VirtualMachine:
        """The machine at a moment; on the way there the earlier ones are kept."""
        set_fault(TOKEN, "")
        self.host.faults = {"nvidia-kernel-support": "sleep 60"}
        for name, condition in MOMENTS.items():
            if name not in self.kept:
                if self.kept:
                    self.host.restore(self.kept[-1])
                else:
                    self.host.power_on(wait=False)
                self.host.until(condition, TO_THE_END)
                self.host.save(name)
                self.kept.append(name)
            if name == moment:
                break
        self.host.faults = {}
        self.host.restore(moment)
        self.host.until("true")
        return self.host


class Trial:
    """A row, and the machine that fills it."""

    def __init__(self, row: Row, machine: Machine) -> None:
        self.row, self.machine = row, machine

    def look(self, host: VirtualMachine) -> None:
        """Note what somebody who logs in now reads."""
        text = host.ssh("cat", "/etc/motd.d/gpusetup", check=False).stdout.strip()
        if text and text not in self.row.saw:
            self.row.saw.append(text)

    def finish(self, host: VirtualMachine, wanted: str = "done", reference: str = "") -> dict[str, Any]:
        """Wait for the end, judge it, boot once more."""
        end = wait_for_end(host, TO_THE_END)
        self.look(host)
        error = end.get("last_error") or {}
        self.row.outcome = end["state"] + (f": {error.get('message')} [{error.get('reference')}]" if error else "")
        problem = self.row.problems.append
        if end["state"] != wanted:
            problem(f"ended {end['state']}, not {wanted}")
        if wanted == "failed" and (not error.get("message") or (reference and error.get("reference") != reference)):
            problem(f"no reason {reference}".strip())
        ran = boots(host)
        self.row.reboots = f"{len(end.get('reboots', []))} of {len(ran) - 1}"
        loaded = ran[-1].loaded
        if wanted == "done":
            if not {"nvidia", "nvidia_uvm"} <= loaded or "nouveau" in loaded or ran[-1].nouveau_before:
                problem("the wrong module is loaded")
            if host.ssh("dpkg", "--audit").stdout:
                problem("dpkg is half way")
            if host.ssh("systemctl", "cat", UNIT, check=False).returncode == 0:
                problem("the service is still there")
        changed = again(host)
        self.row.again = "changes nothing" if not changed else f"changes {len(changed)}: {changed[0]}"
        if changed:
            problem("the next boot changes something")
        return end


def wrong_hash(trial: Trial) -> None:
    text = trial.machine.text
    (pinned,) = re.findall(r'"manifest_sha256": ?"([0-9a-f]{64})"', text)
    host = VirtualMachine.make(f"vm-wrong-hash-{os.getpid()}", text.replace(pinned, "0" * 64))
    try:
        host.power_on(wait=False)
        trial.finish(host, "failed", "GS-732")
    finally:
        host.destroy()


def dpkg_lock(trial: Trial) -> None:
    host = trial.machine.at("installing")
    host.ssh("rm", "-rf", FAULTS_INSIDE)
    host.ssh("systemd-run", "--unit=lab-holder", "/usr/bin/python3", "-c", HOLD)
    host.until(recorded("waiting"), TO_THE_END)
    time.sleep(20)
    if host.status()["state"] != "waiting":
        trial.row.problems.append("it did not wait for the lock")
    trial.look(host)
    host.ssh("touch", "/run/let-go")
    trial.finish(host)


def mirror_503(trial: Trial) -> None:
    host = trial.machine.at("applying")
    host.ssh("rm", "-rf", FAULTS_INSIDE)
    set_fault(TOKEN, "503")
    host.until(recorded("retrying"), TO_THE_END)
    trial.look(host)
    set_fault(TOKEN, "")
    trial.finish(host)


def disk_full(trial: Trial) -> None:
    host = trial.machine.at("applying")
    host.ssh("sh", "-c", FILL, check=False)
    trial.look(host)
    trial.finish(host, "failed")


def person_reboots(trial: Trial) -> None:
    host = trial.machine.at("package")
    trial.look(host)
    host.reboot(timeout=900)
    trial.finish(host)


def power_cut(moment: str) -> Callable[[Trial], None]:
    """Return what cuts the power at a moment."""

    def cut(trial: Trial) -> None:
        host = trial.machine.at(moment)
        trial.look(host)
        host.power_cut()
        host.power_on(wait=False)
        trial.finish(host)

    return cut


FAULTS: dict[str, Callable[[Trial], None]] = {
    "the bundle is not the one whose hash the user-data pins": wrong_hash,
    "another process holds dpkg's lock for a while": dpkg_lock,
    "power cut while gpusetup itself is installed": power_cut("installing"),
    "the package mirror answers 503 for a while": mirror_503,
    "the disk is full when the packages come": disk_full,
    "power cut while dpkg configures the driver's packages": power_cut("package"),
    "a person reboots the machine while dpkg configures the driver's packages": person_reboots,
    "power cut while the module is compiled": power_cut("build"),
}


def main(words: list[str]) -> int:
    try:
        prepare()
    except LabError as error:
        print(f"vm-faults: {error}", file=sys.stderr)
        return 5
    machine = Machine()
    try:
        rows = [one(name, machine) for name in FAULTS if not words or any(word in name for word in words)]
    finally:
        machine.host.destroy()
    print(f"written: {PAGE}")
    failed = [row for row in rows if row.problems]
    print(f"{len(rows)} faults, {len(rows) - len(failed)} as wanted, {len(failed)} not")
    return 1 if failed or not rows else 0


def one(name: str, machine: Machine) -> Row:
    """Run one fault; whatever goes wrong is in its row."""
    row, began = Row(name), time.monotonic()
    try:
        FAULTS[name](Trial(row, machine))
    except LabError as error:
        row.problems.append(str(error).splitlines()[0])
        print(error, file=sys.stderr)
    row.seconds = time.monotonic() - began
    verdict = "NOT as wanted" if row.problems else "as wanted"
    print(f"{row.seconds:5.0f} s  {verdict}: {name}: {row.outcome} {row.problems}", flush=True)
    PAGE.write_text(page(earlier() | {name: line(row)}))
    return row


def earlier() -> dict[str, str]:
    """The page's own lines: a run of some faults leaves the others as they were."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    return {name: text for text in lines for name in FAULTS if text.startswith(f"| {name} |")}


def line(row: Row) -> str:
    wrong = "; **wrong**: " + "; ".join(row.problems) if row.problems else ""
    cells = (row.fault, row.outcome, "; then ".join(row.saw), row.reboots, row.again + wrong)
    return "| " + " | ".join(_timeless(clean(cell)) for cell in cells) + " |"


def page(rows: dict[str, str]) -> str:
    not_run = [name for name in FAULTS if name not in rows]
    as_wanted = sum(1 for text in rows.values() if "; **wrong**: " not in text)
    more = f" {len(not_run)} more were not run." if not_run else ""
    lines = [
        "# Faults during a first boot of virtual machines",
        "",
        "Each row is a virtual machine (Debian 12 with its own kernel, GRUB and cloud-init) on its first boot with user-data of",
        "`gpusetup cloud-init`. `./dev test vm-faults` writes this page. Packages are stand-ins with a real DKMS build of a tiny module; the GPU is simulated.",
        "The last column compares packages, settings, kernels, modules and the record after one more boot.",
        "",
        f"**{len(rows)} faults: {as_wanted} ended as they must, {len(rows) - as_wanted} did not.{more}**",
        "",
        "| fault | end | messages at login | reboots by gpusetup | one more boot |",
        "|---|---|---|---|---|",
        *(rows[name] for name in FAULTS if name in rows),
    ]
    if not_run:
        lines += ["", f"Not run: {'; '.join(not_run)}."]
    return "\n".join(lines) + "\n"


def _timeless(text: str) -> str:
    """What differs from run to run says nothing."""
    text = text.replace("; do not switch off (gpusetup cloud-init status --wait)", "").replace("gpusetup: ", "")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "…", text)
    return re.sub(r"\(process \d+\)", "(process …)", re.sub(r"\b[0-9a-f]{64}\b", "…", text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
