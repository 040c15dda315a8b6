"""How fast a download has to come: a server that sends a byte now and then is left like one that sends nothing."""

import time

LOWEST, SECONDS = 1000, 30.0
"""Bytes a second at least, on average over so many seconds: what dnf asks of its servers too."""


class TooSlow(OSError):  # noqa: N818 - it says how it came
    """It came more slowly than that; it has no errno, for it is no trouble of this host."""


class Pace:
    """Counts what comes."""

    def __init__(self) -> None:
        self.came, self.began = 0, time.monotonic()

    def came_in(self, count: int) -> None:
        """Count some bytes; raise where a whole while brought too few."""
        self.came += count
        took = time.monotonic() - self.began
        if took < SECONDS:
            return
        if self.came < LOWEST * took:
            raise TooSlow(f"it is too slow: {self.came} bytes came in {took:.0f} s, less than {LOWEST} a second")
        self.came, self.began = 0, self.began + took
