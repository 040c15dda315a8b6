"""What selects a default: alternatives of the system, and symbolic links; with the earlier choice on record."""

import os
import re
from typing import Any, Dict, List, Optional, Set, Tuple

from . import files, process
from .failure import HostFailure
from .journal import State, Thing

AUTO = "auto"
_NONE = "^$|no alternatives for|is not installed"  # Red Hat's program prints nothing


class Alternative(Thing):
    """One alternative; its value is the path chosen by hand, or `auto` if the system chooses."""

    kind = "alternative"
    section = "alternatives"
    goes_back = True
    unchosen = (AUTO, None)

    def __init__(self, name: str, env: Dict[str, str]) -> None:
        super().__init__(name)
        self.env = env
        self.said = ""
        self.path = ""
        self.choices: Set[str] = set()
        self.is_way_back = False

    def look(self) -> Optional[str]:
        """Return the choice, by update-alternatives of dpkg or Red Hat; None if there is no such alternative."""
        code, text = process.looked("GS-489", ["update-alternatives", "--display", self.name], self.env, _NONE)
        leads = re.search(r"link currently points to (\S+)", text)
        self.path = leads.group(1) if leads else ""
        self.choices = {line.split(" ", 1)[0] for line in text.splitlines() if line.startswith("/")}
        if code or not text.strip():
            return None
        return AUTO if re.search(r"auto mode|status is auto", text.splitlines()[0]) else self.path

    def fits(self, now: Optional[str], wanted: Optional[str]) -> bool:
        """Return whether it points there; a path that the system chooses need not be chosen by hand."""
        return wanted in (now, self.path)

    def make(self, wanted: Optional[str]) -> None:
        """Choose; if a choice to be restored no longer exists, let the system choose."""
        gone = self.is_way_back and wanted not in self.choices
        words = ["--auto", self.name] if gone or wanted in (None, AUTO) else ["--set", self.name, str(wanted)]
        _code, out, error = process.output(["update-alternatives", *words], self.env)
        self.said = (error or out).strip()

    def came_about(self, now: Optional[str], wanted: Optional[str]) -> bool:
        """Return whether it took effect; on the way back, the system's choice will do if the old one is gone."""
        return self.fits(now, wanted) or (self.is_way_back and now == AUTO and wanted not in self.choices)

    def failure(self, _now: Optional[str], wanted: Optional[str]) -> HostFailure:
        return HostFailure("GS-489", f"the alternative {self.name} could not be set", wanted or "", self.said)

    def note(self, state: State, before: Optional[str], wanted: Optional[str]) -> None:
        """Record the earlier choice, unless nothing had to be changed."""
        if not self.fits(before, wanted):
            super().note(state, before or AUTO, wanted)

    def back(self, now: Optional[str], first: str) -> Optional[str]:
        """Return the earlier choice; None if the alternative went with its packages."""
        self.is_way_back = True
        return None if now is None else first

    def again(self, now: Optional[str], before: Optional[str], _noted: List[Any]) -> Optional[str]:
        return self.back(now, before or AUTO)


class Link(Thing):
    """A symbolic link; its value is its target, None without a link."""

    kind = "link"
    section = "links"
    goes_back = True
    unchosen: Optional[Tuple[Any, ...]] = ()

    def look(self) -> Optional[str]:
        return os.readlink(self.name) if os.path.islink(self.name) else None

    def make(self, wanted: Optional[str]) -> None:
        if wanted is None:
            os.unlink(self.name)
        else:
            files.link_atomically(self.name, wanted)

    def clear_up(self) -> None:
        files.sweep(self.name)

    def note(self, state: State, before: Optional[str], wanted: Optional[str]) -> None:
        """Record the earlier target, and the folders that are made for it."""
        super().note(state, before, wanted)
        state["folders"].setdefault(self.name, files.folders_of_ours(self.name, state))

    def forget(self, state: State) -> None:
        super().forget(state)
        files.drop_folders(state["folders"].pop(self.name, ()))

    def back(self, now: Optional[str], first: Optional[str]) -> Optional[str]:
        """Return the earlier target; None if somebody has put a file or folder in the link's place, which stays."""
        return None if now is None and os.path.lexists(self.name) else first

    def aim(self, wanted: Optional[str]) -> str:
        return "lead to " + wanted if wanted else "go"

    def failure(self, now: Optional[str], wanted: Optional[str]) -> HostFailure:
        return HostFailure("GS-480", f"{self.name} leads to {now or 'nothing'}, not to {wanted or 'nothing'}")
