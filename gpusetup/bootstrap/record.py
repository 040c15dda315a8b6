"""Writes the bootstrap status, atomically and readable by all users, and the login message."""

from __future__ import annotations

import contextlib
import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpusetup.drive.rundir import write_whole
from gpusetup.errors import PreflightError
from gpusetup.model.status import STATUS_FILE, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGE_FILE = Path("/etc/motd.d/gpusetup")


def load(path: Path = Path(STATUS_FILE)) -> Status | None:
    """Return the status on disk; None if there is none or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def save(status: Status, path: Path = Path(STATUS_FILE), login: Path = MESSAGE_FILE) -> None:
    """Write the status, then the login message; errors of the message are ignored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.format(msgspec.json.encode(status), indent=1) + b"\n")
    with contextlib.suppress(OSError):
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
    if status.state == "done" and status.recheck is not None and status.recheck.differences:
        return (
            f"gpusetup: changed since it was applied: {'; '.join(status.recheck.differences)} ({status.recheck.mend})"
        )
    if status.state == "done":
        how = "as far as a simulated GPU allows" if status.simulated else status.verified
        verified = f", verification: {how}" if how else ""
        return f"gpusetup: the NVIDIA stack has been ready since {status.since}{verified}"
    step = f"gpusetup: step {status.step} of {status.of}, {status.doing}"
    return f"{step}; do not shut down (gpusetup cloud-init status --wait)"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; raise if another process has it. The kernel frees it when the process ends."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PreflightError(
                "GS-744", "another bootstrap is running on this machine", note="nothing was changed"
            ) from error
        yield
