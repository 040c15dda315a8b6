"""Arguments on the kernel's command line, by grubby (Red Hat) or pbl (SUSE), recorded before they are set."""

import re
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import process
from .failure import HostFailure
from .journal import UNKNOWN, State, Thing

Command = Callable[[Sequence[str]], None]


class NoBootLoader(HostFailure):
    """No boot loader keeps a command line."""


class Argument(Thing):
    """One argument of the kernels that boot; its value is `all`, `some` or `none` of them, None without any."""

    kind = "kernel argument"
    section = "arguments"
    whole = True
    goes_back = True

    def wanted(self) -> Any:
        """Return the value that includes the argument."""
        return "all"

    def aim(self, wanted: Any) -> str:
        return "go" if wanted in ("none", []) else "be set"

    def first(self, state: State) -> object:
        """Return the value before us: a recorded argument was not there."""
        return "none" if self.name in state[self.section] else UNKNOWN

    def note(self, state: State, before: Any, _wanted: Any) -> None:
        """Record the argument as ours unless all kernels had it before us."""
        if before not in (None, "all") and self.name not in state[self.section]:
            state[self.section] = [*state[self.section], self.name]

    def forget(self, state: State) -> None:
        state[self.section] = [argument for argument in state[self.section] if argument != self.name]

    def again(self, _now: Any, before: Any, noted: List[Any]) -> Any:
        """Keep what an earlier apply set or all kernels had."""
        return "all" if before == "all" or self.name in noted[0] else "none"


class Grubby(Argument):
    """One argument in all of grubby's entries."""

    def __init__(self, name: str, env: Dict[str, str], command: Command) -> None:
        super().__init__(name)
        self.env = env
        self.command = command

    def look(self) -> Optional[str]:
        _code, text, _error = process.output(["grubby", "--info=ALL"], self.env)
        has = [self.name in entry for entry in re.findall(r"^args=(.*)$", text, re.MULTILINE)]
        return ("all" if all(has) else "some" if any(has) else "none") if has else None

    def fits(self, now: Optional[str], wanted: Optional[str]) -> bool:
        """Return whether it is as wanted; without entries there is nothing to do."""
        return now is None or now == wanted

    def make(self, wanted: Optional[str]) -> None:
        self.command(
            ["grubby", "--update-kernel=ALL", ("--args=" if wanted == "all" else "--remove-args=") + self.name]
        )

    def failure(self, now: Optional[str], _wanted: Optional[str]) -> HostFailure:
        said = f"grubby says that {now} of its entries have {self.name}"
        return HostFailure("GS-482", "the kernel's command line could not be changed", "", said, "grubby --info=ALL")


class Pbl(Argument):
    """SUSE's tool knows one value per key, so names that others added to the value are kept."""

    def __init__(self, argument: str, env: Dict[str, str], command: Command) -> None:
        super().__init__(argument)
        self.key, _equals, names = argument.partition("=")
        self.names = names.split(",")
        self.env = env
        self.command = command

    def look(self) -> List[str]:
        _code, text, _error = process.output(["pbl", "--get-option", self.key], self.env)
        found = re.search("^" + re.escape(self.key) + "=(.+)$", text, re.MULTILINE)
        return found.group(1).strip("\"' ").split(",") if found else []

    def make(self, wanted: Sequence[str]) -> None:
        value = self.key + "=" + ",".join(wanted)
        self.command(["pbl", *(["--add-option", value] if wanted else ["--del-option", self.key]), "--config"])

    def failure(self, _now: Sequence[str], _wanted: Sequence[str]) -> HostFailure:
        """Report that there is no boot loader: pbl exits with 0 in that case."""
        return NoBootLoader("GS-482", "pbl changed nothing: it has no boot loader to configure")

    def wanted(self) -> List[str]:
        """Return the value with our names added."""
        there = self.look()
        return there + [name for name in self.names if name not in there]

    def _ours(self, state: State) -> List[str]:
        mine = [argument for argument in state[self.section] if argument.partition("=")[0] == self.key]
        return [name for argument in mine for name in argument.partition("=")[2].split(",")]

    def first(self, state: State) -> object:
        return self._ours(state) or UNKNOWN

    def note(self, state: State, before: Sequence[str], wanted: Sequence[str]) -> None:
        """Record the names that were not there as ours."""
        ours = self._ours(state)
        ours += [name for name in wanted if name not in before and name not in ours]
        if ours:
            state[self.section] = [self.key + "=" + ",".join(ours)]

    def forget(self, state: State) -> None:
        state[self.section] = []

    def back(self, now: Sequence[str], first: Sequence[str]) -> List[str]:
        """Return the value without our names."""
        return [name for name in now if name not in first]

    def again(self, now: Sequence[str], before: Sequence[str], _noted: List[Any]) -> List[str]:
        """Return the earlier value with names that others have added since."""
        return [*before, *(name for name in now if name not in before and name not in self.names)]
