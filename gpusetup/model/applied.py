"""What a host's record says of an apply: written here once it is verified, and read back from the host."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Verified"]


class Verified(Struct, frozen=True, kw_only=True):
    """What the verification of an apply found, and for what; fields of other versions are left alone."""

    key: str | None = None
    """What was asked for, as the lock names it."""
    level: str = ""
    verdict: str = ""
    simulated: bool = False
    driver: str | None = None
    run: str = ""
    time: str = ""
    """When the host wrote it down."""

    @property
    def passed(self) -> bool:
        """Whether all is well, as far as there was a GPU to ask."""
        return self.verdict in {"pass", "warn"} or (self.verdict == "skip" and self.simulated)
