"""A minimum speed for downloads: a server that only trickles bytes is given up like one that sends nothing."""

import time

LOWEST, SECONDS = 1000, 30.0
"""Minimum average in bytes per second, and the seconds over which it is measured; dnf has the same limit."""


class TooSlow(OSError):  # noqa: N818 - it says how it came
    """The download was too slow. It has no errno, because the host is not to blame."""


class Pace:
    """Measures the speed of one download."""

    def __init__(self) -> None:
        self.came, self.began = 0, time.monotonic()

    def came_in(self, count: int) -> None:
        """Count received bytes; raise TooSlow if the last period brought too few."""
        self.came += count
        took = time.monotonic() - self.began
        if took < SECONDS:
            return
        if self.came < LOWEST * took:
            raise TooSlow(f"it is too slow: {self.came} bytes came in {took:.0f} s, less than {LOWEST} a second")
        self.came, self.began = 0, self.began + took
