"""Symbolic links that select a default, with their earlier targets on record."""

import os
from typing import Optional

from . import files
from .failure import HostFailure
from .journal import Thing


class Link(Thing):
    """A symbolic link; its value is its target, None without a link."""

    kind = "link"
    section = "links"
    goes_back = True

    def look(self) -> Optional[str]:
        return os.readlink(self.name) if os.path.islink(self.name) else None

    def make(self, wanted: Optional[str]) -> None:
        if wanted is None:
            os.unlink(self.name)
        else:
            files.link_atomically(self.name, wanted)

    def clear_up(self) -> None:
        files.sweep(self.name)

    def back(self, now: Optional[str], first: Optional[str]) -> Optional[str]:
        """Return the earlier target; None if somebody has put a file or folder in the link's place, which stays."""
        return None if now is None and os.path.lexists(self.name) else first

    def aim(self, wanted: Optional[str]) -> str:
        return "lead to " + wanted if wanted else "go"

    def failure(self, now: Optional[str], wanted: Optional[str]) -> HostFailure:
        return HostFailure("GS-480", f"{self.name} leads to {now or 'nothing'}, not to {wanted or 'nothing'}")
