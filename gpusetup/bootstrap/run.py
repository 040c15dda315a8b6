"""Runs the bootstrap to a final state, recording each state first; sends reports."""

import errno
import hashlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpusetup import __version__
from gpusetup.bootstrap.effects import HOME, LOCK_FILE, Effects, boot_id
from gpusetup.bootstrap.machine import Limits, Moment, advance, begin
from gpusetup.bootstrap.userdata import Config
from gpusetup.bootstrap.web import Unfetched, passes, session
from gpusetup.drive.rundir import alone, write_whole
from gpusetup.errors import PreflightError
from gpusetup.model import kept_in, stamp
from gpusetup.model.status import FINAL, STATUS_FILE, Status

MESSAGE_FILE = Path("/etc/motd.d/gpusetup")


def load(path: Path = Path(STATUS_FILE)) -> Status | None:
    """Return the status on disk; None if there is none or it cannot be read."""
    return kept_in(path, Status)


def save(status: Status, path: Path = Path(STATUS_FILE), login: Path = MESSAGE_FILE) -> None:
    """Write the status, then the login message; errors of the message are ignored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.format(msgspec.json.encode(status), indent=1) + b"\n")
    with suppress(OSError):
        login.parent.mkdir(exist_ok=True)
        write_whole(login, (message(status) + "\n").encode())


def message(status: Status) -> str:
    """Return the login message."""
    if status.state == "failed":
        return f"gpusetup: FAILED: {status.doing} (gpusetup cloud-init status)"
    if status.state == "nothing-to-do":
        return "gpusetup: nothing to do: this machine has no NVIDIA GPU"
    if status.state == "pending-reboot":
        return f"gpusetup: {status.doing}; the running driver stays until then"
    if status.state == "sealed":
        return f"gpusetup: {status.doing}: {status.next}"
    if status.state == "done":
        how = "as far as a simulated GPU allows" if status.simulated else status.verified
        verified = f", verification: {how}" if how else ""
        return f"gpusetup: the NVIDIA stack has been ready since {status.since}{verified}"
    step = f"gpusetup: step {status.step} of {status.of}, {status.doing}"
    return f"{step}; do not shut down (gpusetup cloud-init status --wait)"


def alone_on_machine(home: Path, what: str = "bootstrap", hint: str = "") -> AbstractContextManager[None]:
    """Lock this machine's bootstrap or pull; raise if another process has it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = f"another {what} is running on this machine"
    return alone(home / "lock", PreflightError("GS-744", text, note="nothing was changed", hint=hint))


TOKEN_FILE = Path("/etc/gpusetup/callback.token")
_TRIES = 6
_PAUSE = 2.0


class Callback:
    """A thread that posts the newest status; unsent older ones are dropped."""

    def __init__(
        self, url: str, log: Callable[[str], None], token_file: Path = TOKEN_FILE, pause: float = _PAUSE
    ) -> None:
        self.url, self.log, self.token_file, self.pause = url, log, token_file, pause
        self.newest: Status | None = None
        self.turn = threading.Condition()
        if url:
            threading.Thread(target=self._work, daemon=True).start()

    def tell(self, status: Status) -> None:
        """Queue a status and return at once."""
        if self.url:
            with self.turn:
                self.newest = status
                self.turn.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait at most this long for delivery; return whether nothing is left to send."""
        with self.turn:
            return self.turn.wait_for(lambda: self.newest is None, seconds)

    def _work(self) -> None:
        while True:
            with self.turn:
                while (status := self.newest) is None:
                    self.turn.wait()
            self._deliver(status)
            with self.turn:
                if self.newest is status:
                    self.newest = None
                    self.turn.notify_all()

    def _deliver(self, status: Status) -> None:
        headers = {"Content-Type": "application/json"}
        with suppress(OSError, UnicodeDecodeError):
            headers["Authorization"] = f"Bearer {self.token_file.read_text(encoding='ascii').strip()}"
        body, why = msgspec.json.encode(status), ""
        for attempt in range(_TRIES):
            try:
                with session() as opened:
                    answer = opened.post(
                        self.url, data=body, headers=headers, timeout=15, allow_redirects=False, stream=True
                    )
                if answer.status_code < 300:
                    return
                why = f"it answers {answer.status_code} {answer.reason}"
                if not passes(answer.status_code):
                    break
            except Unfetched as error:
                why = str(error)
            with self.turn:
                if self.turn.wait_for(lambda: self.newest is not status, self.pause * 2**attempt):
                    return
        self.log(f"--callback did not get the state {status.state}: {why}")


RESERVE = HOME / "reserve"
_IN_USE = {"done", "pending-reboot"}
LOG_FILE = Path("/var/log/gpusetup-bootstrap.log")


def bootstrap(config: Config, log: Callable[[str], None]) -> Status:
    """Run to a final state; a reboot ends this process, and the next boot continues."""
    with alone_on_machine(HOME):
        return _to_end(config, log, load())


def _to_end(config: Config, log: Callable[[str], None], before: Status | None) -> Status:
    """Run from the status `before`; on a machine in use a needed reboot stays pending."""
    effects, callback = Effects(config, log), Callback(config.callback, log)
    with suppress(OSError):
        RESERVE.write_bytes(b"\0" * 65536)
    effects.prepare()
    limits = Limits(
        reboots=config.reboots,
        fetches=bool(config.lock_url),
        image=config.stage == "image",
        asks=before is not None and before.state in _IN_USE,
    )
    status = begin(before, _now())
    status = replace(status, log=str(LOG_FILE), gpusetup=__version__)
    while True:
        if status.state in _IN_USE:
            status = replace(status, lock=_digest(LOCK_FILE))
        _keep(status)
        log(message(status))
        callback.tell(status)
        if status.state in FINAL:
            break
        if status.state == "rebooting":
            callback.settle(5)
        status = advance(status, effects.perform(status), limits, _now())
    effects.finish(status)
    RESERVE.unlink(missing_ok=True)
    if not callback.settle(20):
        log("--callback has not got the last state")
    return status


def _keep(status: Status) -> None:
    """Write the status; on a full disk delete the reserve file and try again."""
    try:
        save(status)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        RESERVE.unlink(missing_ok=True)
        save(status)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _now() -> Moment:
    return Moment(stamp(), boot_id())
