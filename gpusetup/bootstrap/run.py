"""From state to state until the end, each on record before it is worked on."""

from __future__ import annotations

import errno
import hashlib
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpusetup import __version__
from gpusetup.bootstrap.callback import Callback
from gpusetup.bootstrap.effects import HOME, LOCK_FILE, Effects, boot_id
from gpusetup.bootstrap.machine import Limits, Moment, advance, begin
from gpusetup.bootstrap.record import alone, load, message, save
from gpusetup.model.status import FINAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.bootstrap.config import Config
    from gpusetup.model.status import Status

__all__ = ["LOG_FILE", "bootstrap"]

RESERVE = HOME / "reserve"
_IN_USE = {"done", "pending-reboot"}
LOG_FILE = Path("/var/log/gpusetup-bootstrap.log")


def bootstrap(config: Config, log: Callable[[str], None], *, asks: bool = False) -> Status:
    """Run to a final state; a reboot on the way ends this process, and the next boot goes on.

    A machine that is in use `asks`: a reboot stays pending for its people.
    """
    effects, callback = Effects(config, log), Callback(config.callback)
    with alone(HOME / "lock"):
        with suppress(OSError):
            RESERVE.write_bytes(b"\0" * 65536)
        effects.prepare()
        before = load()
        limits = Limits(
            reboots=config.reboots,
            fetches=bool(config.lock_url),
            image=config.stage == "image",
            asks=asks or (before is not None and before.state in _IN_USE),
        )
        status = begin(before, _now())
        status = replace(status, log=str(LOG_FILE), gpusetup=__version__)
        while True:
            if status.state in _IN_USE:
                status = replace(status, lock=_digest(LOCK_FILE), recheck=None)
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
        callback.settle(20)
    return status


def _keep(status: Status) -> None:
    """Put the status on record; on a full disk what was kept in reserve makes the room."""
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
    return Moment(datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), boot_id())
