"""While hosts change: whoever cancels the job that holds one means that work on it is to end."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpusetup.errors import GpuSetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpusetup.drive.scheduler.base import Holder

__all__ = ["watched"]

_EVERY = 5.0
_BY_A_PERSON = "CANCELLED"


@contextmanager
def watched(holder: Holder, say: Callable[[str], None]) -> Iterator[None]:
    """Ask now and then what became of the jobs; a cancelled one stops this run as Ctrl-C does.

    A job that ended otherwise (its time is over, it was preempted) is told: its node is drained, so nobody else comes.
    A scheduler that does not answer for a while changes nothing.
    """
    over, told = threading.Event(), set[str]()

    def look() -> None:
        while not over.wait(_EVERY):
            try:
                lost = holder.lost()
            except GpuSetupError:
                continue
            for node, how in lost.items():
                if node not in told and not over.is_set():
                    told.add(node)
                    goes_on = "stopping" if how == _BY_A_PERSON else "the node stays drained, work on it goes on"
                    say(f"{node}: its job has ended ({how.lower()}): {goes_on}")
            if _BY_A_PERSON in lost.values() and not over.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
