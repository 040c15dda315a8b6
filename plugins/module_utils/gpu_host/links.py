"""Symbolic links that say which of several things is the default, with where they led before."""

import os
from typing import Optional

from . import files
from .failure import HostFailure
from .journal import Thing


class Link(Thing):
    """A symbolic link; its value is where it leads, None where there is none."""

    kind = "link"
    section = "links"
    goes_back = True

    def look(self) -> Optional[str]:
        """Return where it leads."""
        return os.readlink(self.name) if os.path.islink(self.name) else None

    def make(self, wanted: Optional[str]) -> None:
        """Let it lead there."""
        if wanted is None:
            os.unlink(self.name)
        else:
            files.link_atomically(self.name, wanted)

    def clear_up(self) -> None:
        """Take the half-made link away."""
        files.sweep(self.name)

    def aim(self, wanted: Optional[str]) -> str:
        """Say where it is to lead."""
        return "lead to " + wanted if wanted else "go"

    def failure(self, now: Optional[str], wanted: Optional[str]) -> HostFailure:
        """Say where it leads instead."""
        return HostFailure("GS-480", f"{self.name} leads to {now or 'nothing'}, not to {wanted or 'nothing'}")
