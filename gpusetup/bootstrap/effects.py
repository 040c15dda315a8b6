"""The work of each bootstrap state on the machine; the last one seals it as an image for copies."""

import errno
import hashlib
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpusetup.bootstrap.machine import Outcome, pause_before
from gpusetup.bootstrap.userdata import ETC, PER_BOOT, START, Config
from gpusetup.bootstrap.web import Unfetched, fetch
from gpusetup.content import host_code
from gpusetup.drive.rundir import write_whole
from gpusetup.drive.runner import Finished, Process, end_of, run
from gpusetup.errors import Exit
from gpusetup.model import UNDECODED
from gpusetup.model.status import Problem, Status

_TICK = 1.0


def wait_for_packages(deadline: float, root: Path = Path("/"), tick: float = _TICK) -> Problem | None:
    """Wait until no program holds a package lock; return a problem after the deadline."""
    packages = host_code("gpu_probe.packages")
    end = time.monotonic() + deadline
    while (held := packages.lock_holder(str(root))) is not None:
        if time.monotonic() >= end:
            who = f"{held['command'] or 'another program'} (process {held['pid']})"
            return Problem(
                reference="GS-745", message=f"{who} holds {held['file']}; waited {deadline:.0f} s for it", exit=5,
                hint="wait for it, or see what it is waiting for",
            )  # fmt: skip
        time.sleep(tick)
    return None


def wait_for_cloud_init(deadline: float, run: Path = Path("/run/cloud-init"), tick: float = _TICK) -> Problem | None:
    """Wait until cloud-init, if enabled, has finished this boot; return a problem after the deadline."""
    end = time.monotonic() + deadline
    while run.is_dir() and not (run / "result.json").exists() and not (run / "disabled").exists():
        if time.monotonic() >= end:
            return Problem(
                reference="GS-746", message=f"cloud-init has not finished within {deadline:.0f} s", exit=5,
                hint="see what it waits for: cloud-init status --long",
            )  # fmt: skip
        time.sleep(tick)
    return None


_LIMIT = 4 * 1024 * 1024


def fetch_lock(config: Config, target: Path) -> Problem | None:
    """Fetch the pinned lock unless the target has its digest already; return a problem if that fails."""
    if target.exists() and _digest(target.read_bytes()) == config.lock_sha256:
        return None
    try:
        raw = fetch(config.lock_url, limit=_LIMIT, patience=config.fetch_deadline)
    except Unfetched as error:
        return Problem(
            reference="GS-750", message=f"the lock cannot be fetched: {error}", exit=6,
            hint="check the server, and that the machine can reach it",
        )  # fmt: skip
    if (found := _digest(raw)) != config.lock_sha256:
        return Problem(
            reference="GS-751", message=f"{config.lock_url} has the digest {found}, not {config.lock_sha256}",
            hint="pin the new digest in the user-data of new machines, or serve the old lock", exit=3,
        )  # fmt: skip
    write_whole(target, raw)
    return None


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


HOME = Path("/var/lib/gpusetup/bootstrap")
LOCK_FILE = Path("/etc/gpusetup/lock.json")
FIRST_BOOT = Path("/var/lib/gpusetup/first-boot")
UNIT = "gpusetup-bootstrap.service"
UNITS = Path("/etc/systemd/system")
UNIT_FILE = UNITS / UNIT
APPLY_DEADLINE = 4 * 3600.0
_REBOOT_PATIENCE = 600.0


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Effects:
    """Performs the states of the bootstrap on this machine."""

    def __init__(self, config: Config, log: Callable[[str], None]) -> None:
        self.config, self.log = config, log

    def perform(self, status: Status) -> Outcome:
        """Do the work of a state; return an OSError as a problem."""
        work = {
            "preparing": self._wait, "waiting": self._wait, "fetching": self._fetch, "applying": self._apply,
            "retrying": self._pause, "rebooting": self._reboot, "sealing": self._seal,
        }  # fmt: skip
        try:
            return work[status.state](status)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            hint = "free some disk space" if error.errno == errno.ENOSPC else ""
            return Outcome("problem", Problem(reference="GS-749", message=f"{where}{error.strerror}", hint=hint))

    def prepare(self) -> None:
        """Enable the service for the next boot: after a failure it is disabled."""
        if UNIT_FILE.exists():
            self._systemctl("enable", UNIT)

    def finish(self, status: Status) -> None:
        """Stop starting at boot; after a failure the unit file stays for another try.

        An image keeps its per-boot script, which starts the service at the first boot of each copy.
        """
        if not UNIT_FILE.exists():
            return  # finished before: the units now belong to the people of this machine
        if status.state == "sealed":
            self._systemctl("disable", UNIT)
            return
        PER_BOOT.unlink(missing_ok=True)
        self._systemctl("disable", UNIT)
        if status.state != "failed":
            UNIT_FILE.unlink(missing_ok=True)
            self._systemctl("daemon-reload")

    def _wait(self, status: Status) -> Outcome:
        if self.config.splay and not status.reboots and not status.attempts:
            time.sleep(random.Random(boot_id()).uniform(0, self.config.splay))  # noqa: S311 - spreads load, guards nothing
        first = FIRST_BOOT.exists() and FIRST_BOOT.read_text(encoding="ascii").strip() == boot_id()
        # In the first boot cloud-init waits for the bootstrap, so that its own status shows the result.
        problem = None if first else wait_for_cloud_init(self.config.wait_deadline)
        return _outcome(problem or wait_for_packages(self.config.wait_deadline))

    def _fetch(self, _: Status) -> Outcome:
        return _outcome(fetch_lock(self.config, LOCK_FILE))

    def _apply(self, _: Status) -> Outcome:
        words = ["apply", "--reboot", "never"]
        if LOCK_FILE.exists():
            words += ["--lock", str(LOCK_FILE), *(["--keep-driver"] if self.config.keep_driver else [])]
        # Always verify: a verification on record may be of the machine that was copied.
        words += ["--stage", self.config.stage] if self.config.stage else ["--verify", "always"]
        done, text = self.gpusetup(*words)
        return outcome_of_apply(done.code, text, timed_out=done.timed_out)

    def _seal(self, _: Status) -> Outcome:
        problem = wait_for_cloud_init(self.config.wait_deadline)
        if problem is None:
            seal(self.config, self.log)
        return _outcome(problem)

    def gpusetup(self, command: str, *words: str) -> tuple[Finished, str]:
        """Run a gpusetup command on this machine; return how it ended and its JSON answer."""
        answer = HOME / "answer.json"
        answer.unlink(missing_ok=True)
        host = {
            "ansible_connection": "local", "ansible_python_interpreter": _system_python(), **self.config.variables,
        }  # fmt: skip
        inventory = HOME / "inventory.json"
        write_whole(inventory, msgspec.json.encode({"all": {"hosts": {"localhost": host}}}), 0o600)
        argv = [sys.executable, "-m", "gpusetup", command, str(inventory), "--format", "json", "--out", str(answer)]
        printed: list[str] = []

        def keep(channel: str, line: str) -> None:
            (printed.append if channel == "out" else self.log)(line)

        environment = {**os.environ, "GPUSETUP_STATE": str(HOME), "ANSIBLE_NOCOLOR": "1"}
        done = end_of(Process([*argv, *words], env=environment, deadline=APPLY_DEADLINE, on_line=keep))
        if done.interrupted:
            raise KeyboardInterrupt
        return done, answer.read_text("utf-8", "replace") if answer.exists() else "\n".join(printed)

    def _pause(self, status: Status) -> Outcome:
        time.sleep(pause_before(status.attempts))
        return _outcome(wait_for_packages(self.config.wait_deadline))

    def _reboot(self, _: Status) -> Outcome:
        problem = wait_for_cloud_init(_REBOOT_PATIENCE)
        if problem is not None:
            self.log(f"{problem.message}; rebooting anyway")
        self._systemctl("reboot")
        time.sleep(_REBOOT_PATIENCE)  # the reboot ends this process; the next boot continues
        problem = Problem(
            reference="GS-747", message=f"the machine did not reboot within {_REBOOT_PATIENCE:.0f} s",
            hint="see what blocks it: systemctl list-jobs", exit=9,
        )  # fmt: skip
        return Outcome("problem", problem)

    def _systemctl(self, *words: str) -> None:
        done = run(["systemctl", *words], env=os.environ, deadline=120)
        if not done.ok:
            self.log(f"systemctl {' '.join(words)}: {done.err.strip()}")


class _Trouble(msgspec.Struct, frozen=True):
    """A failure, refusal, check or conflict in an answer."""

    reference: str = ""
    message: str = ""
    hint: str = ""
    id: str = ""
    verdict: str = ""
    text: str = ""


class HostAnswer(msgspec.Struct, frozen=True):
    """What apply answered about this machine; the state is empty without an answer."""

    state: str = ""
    changed: int = 0
    verified: str = ""
    simulated: bool = False
    pending: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    failed_at: str | None = None
    failure: _Trouble | None = None
    refusals: tuple[_Trouble, ...] = ()
    checks: tuple[_Trouble, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    hosts: dict[str, HostAnswer] = {}
    error: _Trouble = _Trouble()
    conflict: tuple[_Trouble, ...] = ()


def answer_of(text: str) -> tuple[HostAnswer, _Answer]:
    """Read what a command answered about this machine."""
    answer = _Answer()
    with suppress(*UNDECODED):
        answer = msgspec.json.decode(text, type=_Answer)
    return next(iter(answer.hosts.values()), HostAnswer()), answer


def outcome_of_apply(code: int, text: str, *, timed_out: bool = False) -> Outcome:
    """Read what apply answered about this machine."""
    host, answer = answer_of(text)
    if host.state == "nothing-to-do":
        return Outcome("nothing-to-do")
    about = partial(Outcome, verified=host.verified, simulated=host.simulated)
    if host.state == "pending-reboot":
        return about("reboot", reasons=host.pending)
    if host.state and (code == 0 or (code == Exit.PENDING and host.state == "done" and host.waits)):
        return about("ok")
    failure = host.failure or next(iter(host.refusals), answer.error)
    message = failure.message or "; ".join(item.text for item in answer.conflict)
    failed_checks = [check.text or check.id for check in host.checks if check.verdict == "fail"]
    if host.state == "verify-failed" and failed_checks:
        message = "verification failed: " + "; ".join(failed_checks)
    if timed_out:
        message = f"apply did not end within {APPLY_DEADLINE:.0f} s"
    message = " ".join(message.split())[:1500] or f"apply ended with exit code {code}"
    message += f" (at: {host.failed_at})" if host.failed_at else ""
    reference, code = failure.reference or "GS-748", code if code > 0 else 7
    return about("problem", Problem(reference=reference, message=message, hint=failure.hint, exit=code))


def _outcome(problem: Problem | None) -> Outcome:
    return Outcome("ok") if problem is None else Outcome("problem", problem)


def _system_python() -> str:
    found = [path for path in ("/usr/bin/python3", "/usr/libexec/platform-python") if Path(path).exists()]
    return found[0] if found else sys.executable


_OURS = (
    "var/lib/gpusetup/first-boot",
    "var/lib/gpusetup/bootstrap",
    "var/lib/gpusetup/bundle",
    "etc/gpusetup/callback.token",
)
_SYSTEM = ("var/lib/systemd/random-seed",)
_CACHES = (("apt-get", "clean"), ("dnf", "clean", "packages"), ("zypper", "clean"))


def seal(config: Config, log: Callable[[str], None], root: Path = Path("/")) -> None:
    """Clean this machine so that its disk can be copied; safe to repeat.

    SSH host keys stay, since nobody could log in without them; cloud-init makes new ones on each copy.
    """
    for argv in (*_CACHES, ("cloud-init", "clean", "--logs", "--seed")):
        if shutil.which(argv[0]):
            done = run(list(argv), env=os.environ, deadline=300)
            if not done.ok:
                log(f"{' '.join(argv)}: {done.err.strip()}")
    for name in (*_OURS, *_SYSTEM):
        _remove(root / name)
    _forget_machine_id(root)
    start = root / PER_BOOT.relative_to("/")
    start.parent.mkdir(parents=True, exist_ok=True)
    write_whole(start, START.encode(), 0o755)
    # Last, since it ends the stage `image`. No reports: their token is not part of an image.
    left = replace(config, stage="", callback="")
    write_whole(root / (ETC / "bootstrap.json").relative_to("/"), msgspec.json.encode(left) + b"\n", 0o600)
    os.sync()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _forget_machine_id(root: Path) -> None:
    """Empty machine-id: systemd then makes a new id; if absent, it would treat the boot as a system's very first."""
    own, bus = root / "etc/machine-id", root / "var/lib/dbus/machine-id"
    write_whole(own, b"", 0o444)
    if bus.exists() and not bus.is_symlink():
        bus.unlink()
        bus.symlink_to("/etc/machine-id")
