"""Set up this machine: wait, apply, reboot if needed, verify.

The service gpusetup-bootstrap calls it at each boot until it is done. By hand it continues where it stopped, retries
after a failure, or applies the lock again on a finished machine, which it does not reboot.

examples:
  gpusetup cloud-init bootstrap run
"""

import argparse
import os
import sys
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpusetup.cli import options, output, streams
from gpusetup.errors import BadInputError, Exit
from gpusetup.model import Reading
from gpusetup.model.status import FINAL, STATUS_FILE, Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", choices=("run",), help="until done or failed")


def run(_arguments: argparse.Namespace) -> Exit:
    """Run the bootstrap; every line goes to the log and to standard output (systemd's journal)."""
    from gpusetup.bootstrap.run import LOG_FILE, bootstrap
    from gpusetup.bootstrap.userdata import read_config

    config = read_config()
    descriptor = os.open(LOG_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    with os.fdopen(descriptor, "a", encoding="utf-8", buffering=1) as file:

        def log(line: str) -> None:
            print(line, flush=True)
            try:
                file.write(line + "\n")
            except OSError as error:  # a full disk must not hide the error in the status
                print(f"{LOG_FILE}: {error.strerror}", file=sys.stderr)

        with streams.terminated_is_interrupted():  # on a shutdown apply stops cleanly; the next boot continues
            status = bootstrap(config, log)
    if status.state == "pending-reboot":
        return Exit.PENDING
    if status.state == "failed" and status.last_error is not None:
        return Exit(status.last_error.exit)
    return Exit.DONE


_TICK = 1.0


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--wait", action="store_true", help="until done or failed")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="with --wait: give up after SECONDS")
    parser.add_argument("--file", default=STATUS_FILE, metavar="FILE", help="default: %(default)s")
    options.add_output(parser)


def run_status(arguments: argparse.Namespace) -> Exit:
    """Show how far the setup of this machine is: state, step, last error, next step.

    Exit code 0 when done, 9 while it runs or a reboot is pending, else the failure's code.

    examples:
      gpusetup cloud-init status
      gpusetup cloud-init status --wait --timeout 3600 && ./train.sh
    """
    end = time.monotonic() + arguments.timeout if arguments.timeout is not None else None
    status = _read(arguments.file)
    while arguments.wait and status.state not in FINAL and (end is None or time.monotonic() < end):
        time.sleep(_TICK)
        status = _read(arguments.file)
    output.answer(arguments.format, status, status_text(status), arguments.out)
    return exit_of(status)


def exit_of(status: Status) -> Exit:
    """Return the exit code for a status."""
    if status.state not in FINAL or status.state == "pending-reboot":
        return Exit.PENDING
    if status.state != "failed":
        return Exit.DONE
    return Exit(status.last_error.exit) if status.last_error is not None else Exit.FAILED


def status_text(status: Status) -> str:
    """Return a status as text."""
    head = f"{status.state} since {status.since}"
    if status.state not in FINAL:
        head = f"step {status.step} of {status.of}: {status.doing} (since {status.since})"
    lines = [head, *([status.doing] if status.state in {"sealed", "pending-reboot"} else [])]
    if status.verified:
        lines.append(f"verification: {status.verified}" + (" (simulated GPU)" if status.simulated else ""))
    if status.last_error is not None:
        lines.append(f"last error: {status.last_error.message} [{status.last_error.reference}]")
        lines += [f"  {status.last_error.hint}"] if status.last_error.hint else []
    lines += [f"reboot at {reboot.time}: {reboot.reason}" for reboot in status.reboots]
    lines += [f"next: {status.next}"] if status.next else []
    lines += [f"log: {status.log}"] if status.log else []
    return "\n".join(lines) + "\n"


def _read(path: str) -> Status:
    from gpusetup.bootstrap.effects import boot_id

    with Reading(path, ("GS-762", "cannot read the status"), ("GS-761", "cannot read the status")):
        try:
            status = msgspec.json.decode(Path(path).read_bytes(), type=Status)
        except FileNotFoundError as error:
            raise BadInputError("GS-760", "no bootstrap has run on this machine", path=path) from error
    if status.state == "sealed" and status.boot != boot_id():
        # The status of the sealed image: this copy of it has not started yet.
        return replace(status, state="preparing", step=1, doing="waiting for cloud-init to start the service", next="")
    return status
