"""Follow the kernel log and the GPUs' health, and report each new finding once."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from gpusetup.doctor.findings import findings, gpus_in
from gpusetup.doctor.scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpusetup.model.diagnosis import Finding

HEALTH_EVERY = 30.0
_AGAIN_AFTER = 600.0
_RECORD = 8192


class Seen:
    """The findings reported so far: the same finding about the same GPU is news again only after a quiet while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[tuple[object, ...], float] = {}

    def news(self, finding: Finding) -> bool:
        """Return whether the finding has not occurred lately, and record that it has now."""
        key = (finding.cause, finding.details, gpus_in(finding.evidence))
        now = self._clock()
        last = self._said.get(key)
        self._said[key] = now
        return last is None or now - last > _AGAIN_AFTER


def message_of_record(record: str) -> str:
    """Return the message of a /dev/kmsg record (`6,1234,5678,-;text`), without continuation lines."""
    return record.partition(";")[2].split("\n", 1)[0] if ";" in record else record.strip()


def kernel_messages(path: str = "/dev/kmsg", *, tick: float = 1.0) -> Iterator[str]:
    """Yield the kernel's messages from now on, and an empty string at every tick without one."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(handle, 0, os.SEEK_END)
        while True:
            ready, _, _ = select.select([handle], [], [], tick)
            if not ready:
                yield ""
                continue
            try:
                record = os.read(handle, _RECORD)
            except BlockingIOError:
                continue
            except BrokenPipeError:
                continue  # the ring buffer overran: some messages are lost
            if not record:
                time.sleep(tick)
                yield ""
                continue
            for text in record.decode("utf-8", "replace").splitlines():
                if not text.startswith(" "):
                    yield message_of_record(text)
    finally:
        os.close(handle)


def watch(
    messages: Iterator[str],
    health: Callable[[], Finding | None],
    say: Callable[[Finding], None],
    *,
    every: float = HEALTH_EVERY,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Report findings in the messages until they end, and check the machine's health every `every` seconds."""
    seen, sick, next_look = Seen(clock), "", clock()
    for message in messages:
        if message:
            for finding in findings(scan(message)):
                if seen.news(finding):
                    say(finding)
        if clock() < next_look:
            continue
        next_look = clock() + every
        found = health()
        name = found.cause if found is not None else ""
        if found is not None and name != sick:
            say(found)
        sick = name
