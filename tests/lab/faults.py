"""Faults, one by one, on throw-away hosts: what happened, what a person saw, what is left, and the same command again.

`./dev test faults` runs them all (some minutes) and writes docs/reference/faults.md; `python -m tests.lab.faults WORD…` runs those
whose name holds a word and writes their rows anew. Stand-in packages, simulated GPUs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab import machine
from tests.lab.applying import Answer, gpusetup
from tests.lab.host import SSH_OPTIONS, Host, HostSpec
from tests.lab.places import HOSTS, SIMULATED_ROOT, SSH_KEY, locked
from tests.lab.plays import packages
from tests.lab.repository.build import ready, set_fault

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "faults.md"
RESULTS = HOSTS.parent / "faults.json"
"""Rows of earlier runs: a run of some faults leaves the others as they were."""
COMPLETE = (0,)
STEPS = (
    "Look at the host",
    "Look before touching",
    "Is the host as wanted already",
    "Repositories, each with its proven key",
    "One transaction for all packages of the stack",
    "Keep nouveau off the GPU",
    "Configure and load the module",
    "Keep the driver initialised",
    "Is a reboot needed",
    "Record what was done",
    "Record what the verification found",
)
NOT_RUN = {
    "clock wrong by years": "all lab hosts share the clock of one kernel",
    "read-only /boot": "no lab host has one yet",
    "SELinux, AppArmor": "the shared kernel enforces neither",
    "one host of twenty hanging": "not written yet",
    "reboot that never returns": "would wait for the reboot deadline of 30 minutes",
    "mirror that accepts and never answers": "would wait for the deadline of the preview",
    "a kernel too new for the driver, really": "a build told to fail stands in for it; the real pair is in the matrix",
}


@dataclass
class Row:
    """One line of the table."""

    fault: str
    exit: str = ""
    saw: str = ""
    after: str = ""
    again: str = ""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Lab:
    """One host, its inventory and the command, for one row."""

    def __init__(self, name: str, base: str = "", **spec: Any) -> None:
        self.repositories = ready()
        words = {"flavour": "debian12", "machine": "t4", **spec}
        self.host = Host.create(HostSpec(name=f"fault-{name}-{os.getpid()}"[-40:].strip("-"), **words))
        self.folder = Path(tempfile.mkdtemp(prefix="gpusetup-fault-"))
        self.inventory = self.folder / "inventory.ini"
        self.base = base or self.repositories.base
        self.write()
        self.before = packages(self.host)

    def write(self, user: str = "root", extra: str = "") -> None:
        """Write the inventory."""
        common = " ".join(word for word in SSH_OPTIONS if word != "LogLevel=ERROR").removesuffix(" -o")
        variables = {
            "ansible_user": user,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(SSH_KEY),
            "ansible_ssh_common_args": common,
            "gpusetup_simulated_root": SIMULATED_ROOT,
            "gpusetup_source": self.base,
            "gpusetup_source_fingerprints": self.repositories.fingerprint,
            "gpusetup_source_key": f"{self.repositories.base}/lab-key.asc",
            "gpusetup_components": '["driver"]',
            "gpusetup_driver": "580.*",
        }
        lines = [f"[lab]\n{self.host.name} ansible_host={self.host.address}\n{extra}\n[lab:vars]"]
        self.inventory.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in variables.items())]) + "\n")

    def apply(self, *words: str) -> Answer:
        return gpusetup(self.folder, "apply", self.inventory, "--format", "json", *words, timeout=900)

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
        jobs = self.host.path("/var/lib/gpusetup/jobs")
        with contextlib.suppress(OSError):
            return any('"step": "install"' in path.read_text() for path in jobs.glob("packages-*/status.json"))
        return False

    def state(self) -> str:
        """What is on the host, in words."""
        now = packages(self.host)
        more = len(set(now) - set(self.before))
        text = "packages as before" if now == self.before else f"{more} packages more"
        audit = self.host.ssh("dpkg", "--audit", check=False).stdout.strip()
        return text + (", dpkg half way" if audit else "")

    def close(self) -> None:
        self.host.destroy()


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
            return " ".join(str(failure["message"]).split())[:160] + reference
        return str(outcome["state"]) + (f": {'; '.join(outcome['pending'])}" if outcome.get("pending") else "")
    return ""


def judged(row: Row, lab: Lab, answer: Answer, codes: tuple[int, ...], *, unchanged: bool = False) -> None:
    """Fill the row from the run under the fault."""
    row.exit, row.saw, row.after = str(answer.code), said(answer), lab.state()
    if answer.code not in codes:
        row.problems.append(f"exit {answer.code}, expected {codes}")
    if unchanged and row.after != "packages as before":
        row.problems.append("packages changed although it was refused")
    if "Traceback" in answer.err + answer.out:
        row.problems.append("a traceback: " + (answer.err.strip().splitlines() or [""])[-2:][0][:200])


def completes(row: Row, lab: Lab, codes: tuple[int, ...] = COMPLETE) -> None:
    """The same command once the fault is gone."""
    again = lab.apply()
    row.again = f"exit {again.code}: {said(again)}"
    if again.code not in codes:
        row.problems.append(f"the same command again: exit {again.code}: {said(again)}")
    if codes == COMPLETE:
        if lab.host.ssh("dpkg", "--audit", check=False).stdout.strip():
            row.problems.append("dpkg is half way at the end")
        if "580" not in lab.host.ssh("nvidia-smi", check=False).stdout:
            row.problems.append("the driver does not answer at the end")


# -- the faults ---------------------------------------------------------------------------------------------------


def mirror(what: str, where: str, codes: tuple[int, ...]) -> Callable[[Row], None]:
    def run(row: Row) -> None:
        token = f"fault{what.replace('-', '')}{where}{os.getpid()}"
        lab = Lab(f"{what}-{where}", base=ready().with_fault(token, what, where).base)
        try:
            judged(row, lab, lab.apply(), codes, unchanged=True)
            set_fault(token, "")
            completes(row, lab)
        finally:
            lab.close()

    return run


def mirror_gone(row: Row) -> None:
    lab = Lab("gone", base="http://10.77.0.1:9")
    try:
        judged(row, lab, lab.apply(), (5, 6), unchanged=True)
        lab.base = lab.repositories.base
        lab.write()
        completes(row, lab)
    finally:
        lab.close()


def wrong_key(row: Row) -> None:
    token = f"faultwrongkey{os.getpid()}"
    lab = Lab("wrong-key", base=ready().with_fault(token, "wrong-key", "index").base)
    try:
        judged(row, lab, lab.apply(), (5, 6), unchanged=True)
        set_fault(token, "")
        completes(row, lab)
    finally:
        lab.close()


def ssh_cut(row: Row) -> None:
    lab = Lab("ssh-cut")
    try:
        lab.host.break_packages("nvidia-smi", "sleep 8")
        answer = lab.apply_until(lab.installing, lambda _pid: lab.host.cut_network())
        lab.host.restore_network()
        judged(row, lab, answer, (6, 7))
        completes(row, lab)
    finally:
        lab.close()


def power_cut(package: str, how: str) -> Callable[[Row], None]:
    def run(row: Row) -> None:
        lab = Lab(f"power-{package}")
        try:
            lab.host.break_packages(package, how)
            answer = lab.apply_until(lab.installing, lambda _pid: (time.sleep(3), lab.host.power_cut()))  # type: ignore[arg-type,func-returns-value]
            lab.host.break_packages(package, "")
            lab.host.power_on()
            judged(row, lab, answer, (6, 7))
            completes(row, lab)
        finally:
            lab.close()

    return run


def full(mount: str, mib: int) -> Callable[[Row], None]:
    def run(row: Row) -> None:
        lab = Lab(f"full{mount.replace('/', '-')}", disks={mount: mib})
        try:
            lab.host.fill_disk(mount, leave_mib=3)
            judged(row, lab, lab.apply(), (5, 7), unchanged=mount == "/")
            lab.host.free_disk(mount)
            completes(row, lab)
        finally:
            lab.close()

    return run


def lock_held(row: Row) -> None:
    lab = Lab("lock")
    hold = "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(40)"
    try:
        with subprocess.Popen([*lab.host.ssh_argv(), f'exec python3 -c "{hold}"']) as other:
            time.sleep(1.5)
            judged(row, lab, lab.apply(), (0,))
            other.kill()
        completes(row, lab)
    finally:
        lab.close()


def dpkg_interrupted(row: Row) -> None:
    lab = Lab("half-dpkg")
    try:
        control = "Package: lab-half\nVersion: 1\nArchitecture: all\nMaintainer: lab\nDescription: half\n"
        lab.host.ssh("sh", "-c", f"mkdir -p /tmp/h/DEBIAN && printf '{control}' >/tmp/h/DEBIAN/control")
        lab.host.ssh("sh", "-c", "dpkg-deb -b /tmp/h /tmp/h.deb && dpkg --unpack /tmp/h.deb")
        judged(row, lab, lab.apply(), (0,))
        completes(row, lab)
    finally:
        lab.close()


def build_fails(row: Row) -> None:
    lab = Lab("build")
    try:
        lab.host.break_packages("dkms-build", "fail")
        judged(row, lab, lab.apply(), (7,), unchanged=True)
        lab.host.break_packages("dkms-build", "")
        completes(row, lab)
    finally:
        lab.close()


def no_headers(row: Row) -> None:
    lab = Lab("headers")
    try:
        lab.host.ssh("sh", "-c", "dpkg --purge --force-depends $(dpkg-query -W -f '${Package}\\n' 'linux-headers-*')")
        lab.before = packages(lab.host)
        judged(row, lab, lab.apply(), (4, 5), unchanged=True)
        completes(row, lab, (4, 5))
    finally:
        lab.close()


def no_rights(row: Row) -> None:
    lab = Lab("rights")
    try:
        lab.write(user="guest")
        judged(row, lab, lab.apply(), (5,), unchanged=True)
        lab.write(user="admin")
        completes(row, lab)
    finally:
        lab.close()


def hostile_names(row: Row) -> None:
    lab = Lab("names")
    canary = lab.folder / "canary"
    marks = [
        "$(touch {})",
        "`touch {}`",
        ";touch {};",
        "|touch {}",
        "{{{{lookup('pipe','touch {}')}}}}",
        "-oProxyCommand=touch {}",
    ]
    names = [marks[number % len(marks)].format(canary).replace(" ", "${IFS}") + str(number) for number in range(200)]
    try:
        document = {
            "lab": {"hosts": {lab.host.name: {"ansible_host": lab.host.address}, **{name: {} for name in names}}}
        }
        variables = dict(
            line.split("=", 1) for line in lab.inventory.read_text().partition("[lab:vars]\n")[2].splitlines()
        )
        variables["gpusetup_components"] = json.loads(variables["gpusetup_components"])
        document["lab"]["vars"] = variables
        good, lab.inventory = lab.inventory, lab.folder / "hostile.json"
        lab.inventory.write_text(json.dumps(document))
        answer = lab.apply()
        judged(row, lab, answer, (3, 5))
        states = [outcome["state"] for outcome in answer.hosts.values()] if answer.out.startswith("{") else []
        row.saw = f"{states.count('refused')} refused by name, {states.count('done')} done; {row.saw}"
        if canary.exists():
            row.problems.append("a name was executed")
        lab.inventory = good
        completes(row, lab)
    finally:
        lab.close()


def controller_killed(report: Callable[[Row], None]) -> None:
    """SIGKILL at every step, one after the other on one host, always the same command; then it completes."""
    lab = Lab("kill", machine="t4")
    try:
        for step in STEPS:
            row = Row(killed_at(step))
            began = time.monotonic()
            try:
                answer = lab.apply_until(lab.at(step), kill_tree)
                row.exit, row.saw, row.after = "killed", "nothing more", lab.state()
                if answer.code != -signal.SIGKILL:
                    row.problems.append(f"exit {answer.code} instead of a kill")
                row.again = "goes on to the next step"
            except AssertionError as error:
                row.exit, row.after, row.again = "not killed", lab.state(), str(error)
                row.problems.append(str(error))
            if step == STEPS[-1]:
                completes(row, lab)
                final = lab.apply()
                row.again += f"; once more: {said(final)}"
            row.seconds = time.monotonic() - began
            report(row)
    finally:
        lab.close()


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


FAULTS: dict[str, Callable[[Row], None]] = {
    "mirror: the index is missing (404)": mirror("404", "index", (5, 6)),
    "mirror: a package is missing (404)": mirror("404", "packages", (7,)),
    "mirror: packages with a wrong hash": mirror("corrupt", "packages", (7,)),
    "mirror: a truncated index": mirror("truncated", "index", (5, 6)),
    "mirror: nothing listens": mirror_gone,
    "mirror: signed by another key": wrong_key,
    "mirror: an expired index": mirror("expired", "index", (5, 6)),
    "SSH cut in the middle of dpkg": ssh_cut,
    "host power cut in the middle of dpkg": power_cut("nvidia-smi", "sleep 8"),
    "host power cut in the middle of the module build": power_cut("dkms-build", "sleep 12"),
    "disk full: /": full("/", 2500),
    "disk full: /boot": full("/boot", 96),
    "dpkg lock held by another program for 40 s": lock_held,
    "an interrupted dpkg from before": dpkg_interrupted,
    "the module build fails": build_fails,
    "kernel headers missing and not offered": no_headers,
    "sudo without rights, then with": no_rights,
    "200 hostile inventory names beside a good one": hostile_names,
}


def main(words: list[str]) -> int:
    """Run the faults whose name holds one of the words, all without words, and write the page."""
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    rows: list[Row] = []
    noise = threading.Lock()

    def report(row: Row) -> None:
        with noise:
            rows.append(row)
            keep(row)
            verdict = "FAILED: " + "; ".join(row.problems) if row.problems else "ok"
            print(
                f"{row.seconds:5.0f} s  {row.fault}: exit {row.exit}, {row.saw} | {row.after} | {row.again} | {verdict}",
                flush=True,
            )

    def one(name: str) -> None:
        row, began = Row(name), time.monotonic()
        try:
            FAULTS[name](row)
        except Exception as error:
            row.problems.append(f"{type(error).__name__}: {error}"[:300])
        row.seconds = time.monotonic() - began
        report(row)

    chosen = [name for name in FAULTS if not words or any(word in name for word in words)]
    with ThreadPoolExecutor(int(os.environ.get("GPUSETUP_FAULTS_AT_ONCE", "3"))) as pool:
        jobs = [pool.submit(one, name) for name in chosen]
        if not words or "killed" in words:
            jobs.append(pool.submit(controller_killed, report))
        for job in jobs:
            job.result()
    PAGE.write_text(page(kept()))
    print(f"written: {PAGE}")
    failed = [row for row in rows if row.problems]
    print(f"{len(rows)} faults, {len(rows) - len(failed)} as wanted, {len(failed)} not, {len(NOT_RUN)} not run")
    return 1 if failed else 0


def keep(row: Row) -> None:
    """Remember a row for the page."""
    with locked("faults"):
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        found[row.fault] = asdict(row)
        RESULTS.write_text(json.dumps(found, indent=1))


def kept() -> list[Row]:
    """The rows of all faults that were run, in the order of the table."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return [Row(**found[name]) for name in (*FAULTS, *map(killed_at, STEPS)) if name in found]


def killed_at(step: str) -> str:
    return f"controller killed (SIGKILL) at “{step}”"


def page(rows: list[Row]) -> str:
    """The page of the docs."""
    ran = {row.fault for row in rows}
    not_run = {name: "not run yet" for name in (*FAULTS, *map(killed_at, STEPS)) if name not in ran} | NOT_RUN
    failed = sum(1 for row in rows if row.problems)
    lines = [
        "# Faults that were tried",
        "",
        "Written by `./dev test faults`; do not edit. Every row ran `gpusetup apply` for one driver on a throw-away host of its own",
        "(Debian 12 in a container, real SSH, apt, dpkg and DKMS; stand-in packages, a simulated T4), then, with the fault gone,",
        "the same command again. The rows of the killed controller share one host and follow one another. A row is the last run of its",
        "fault; faults can be run one by one.",
        "",
        f"**{len(rows)} faults: {len(rows) - failed} as wanted, {failed} not. {len(not_run)} more were not run.**",
        "",
        "| fault | exit | what a person saw | on the host then | the same command again | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = "not as wanted: " + "; ".join(row.problems) if row.problems else "as wanted"
        cells = (row.fault, row.exit, row.saw, row.after, row.again, verdict)
        lines.append("| " + " | ".join(clean(cell) for cell in cells) + " |")
    lines += ["", "Not run:", "", "| fault | why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in not_run.items()]
    return "\n".join(lines) + "\n"


def clean(text: str) -> str:
    """Text for a table cell: no lab names or addresses, which change with every run."""
    import re

    text = re.sub(r"http://10\.77\.0\.1:\d+\S*", "the mirror", text)
    text = re.sub(r"10\.77\.\d+\.\d+", "the host", text)
    text = re.sub(r"/tmp/gpusetup-fault-\w+", "…", text)
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
