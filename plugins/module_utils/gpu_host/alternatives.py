"""Which of several programs or folders an alternative names, with what somebody had chosen before."""

import re
from typing import Any, Dict, List, Optional, Set

from . import process
from .failure import HostFailure
from .journal import State, Thing

AUTO = "auto"


class Alternative(Thing):
    """One alternative; its value is the path that was chosen by hand, `auto` where the system chooses."""

    kind = "alternative"
    section = "alternatives"
    goes_back = True

    def __init__(self, name: str, env: Dict[str, str]) -> None:
        super().__init__(name)
        self.env = env
        self.said = ""
        self.path = ""
        self.choices: Set[str] = set()
        self.is_way_back = False

    def look(self) -> Optional[str]:
        """Ask update-alternatives, in the words of dpkg and of Red Hat; None where there is no such alternative."""
        code, text, _error = process.output(["update-alternatives", "--display", self.name], self.env)
        leads = re.search(r"link currently points to (\S+)", text)
        self.path = leads.group(1) if leads else ""
        self.choices = {line.split(" ", 1)[0] for line in text.splitlines() if line.startswith("/")}
        if code or not text.strip():
            return None
        return AUTO if re.search(r"auto mode|status is auto", text.splitlines()[0]) else self.path

    def fits(self, now: Optional[str], wanted: Optional[str]) -> bool:
        """What the system chooses anyhow need not be chosen by hand."""
        return wanted in (now, self.path)

    def make(self, wanted: Optional[str]) -> None:
        """Choose; a choice that is gone is left to the system."""
        gone = self.is_way_back and wanted not in self.choices
        words = ["--auto", self.name] if gone or wanted in (None, AUTO) else ["--set", self.name, str(wanted)]
        _code, out, error = process.output(["update-alternatives", *words], self.env)
        self.said = (error or out).strip()

    def came_about(self, now: Optional[str], wanted: Optional[str]) -> bool:
        """On the way back the system's choice does where the old one is gone."""
        return self.fits(now, wanted) or (self.is_way_back and now == AUTO and wanted not in self.choices)

    def failure(self, _now: Optional[str], wanted: Optional[str]) -> HostFailure:
        """Say what update-alternatives said."""
        return HostFailure("GS-489", f"the alternative {self.name} could not be set", wanted or "", self.said)

    def note(self, state: State, before: Optional[str], wanted: Optional[str]) -> None:
        """What was right before us is nothing of ours."""
        if not self.fits(before, wanted):
            super().note(state, before or AUTO, wanted)

    def back(self, now: Optional[str], first: str) -> Optional[str]:
        """An alternative that went with its packages needs nothing."""
        self.is_way_back = True
        return None if now is None else first

    def again(self, now: Optional[str], before: Optional[str], _noted: List[Any]) -> Optional[str]:
        """Choose what was chosen."""
        return self.back(now, before or AUTO)
