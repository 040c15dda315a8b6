"""Set up this machine: wait, apply, reboot if needed, verify.

The service gpusetup-bootstrap calls it at each boot until it is done. By hand it continues where it stopped, retries
after a failure, or applies the lock again on a finished machine, which it does not reboot. `recheck`, which the timer
of --recheck calls, applies a newly pinned lock or reports differences.

examples:
  gpusetup cloud-init bootstrap run
  gpusetup cloud-init bootstrap recheck
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", choices=("run", "recheck"), help="run: until done or failed; recheck: check again")


def run(arguments: argparse.Namespace) -> Exit:
    """Run it; every line goes to the log and to standard output, which is the journal under systemd."""
    from gpusetup.bootstrap.config import read_config
    from gpusetup.bootstrap.run import LOG_FILE, bootstrap, recheck

    config = read_config()
    descriptor = os.open(LOG_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    with os.fdopen(descriptor, "a", encoding="utf-8", buffering=1) as file:

        def log(line: str) -> None:
            print(line, flush=True)
            try:
                file.write(line + "\n")
            except OSError as error:  # a full disk must not hide the reason that the status holds
                print(f"{LOG_FILE}: {error.strerror}", file=sys.stderr)

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, stop)  # a shutdown lets apply end in order; the next boot goes on
        status = (recheck if arguments.action == "recheck" else bootstrap)(config, log)
    if status.state == "pending-reboot" or (status.recheck is not None and status.recheck.differences):
        return Exit.PENDING
    if status.state == "failed" and status.last_error is not None:
        return Exit(status.last_error.exit) if status.last_error.exit in set(Exit) else Exit.FAILED
    return Exit.DONE
