"""The command line's own grammar: words in any order, and one line with a suggestion where it is not understood."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from gpusetup.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Parser", "command_meant"]

_MEANT_BY_COMMAND = {
    "check": "verify",
    "detect": "facts",
    "diagnose": "doctor",
    "explain": "why",
    "fix": "doctor",
    "info": "facts",
    "install": "apply",
    "list": "matrix",
    "lookup": "matrix",
    "purge": "remove",
    "search": "matrix",
    "setup": "apply",
    "show": "matrix",
    "solve": "resolve",
    "test": "verify",
    "undo": "rollback",
    "uninstall": "remove",
    "update": "apply",
    "upgrade": "apply",
}
"""What other programs call it → what it is called here."""
_MEANT_BY_OPTION = {
    "--json": "--format json",
    "--csv": "--format csv",
    "--output": "--out",
    "--inventory": "INVENTORY",
    "--distro": "--os",
    "--cpu": "--arch",
    "--silent": "--quiet",
    "--version": "gpusetup --version",
}
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)


def near(word: str, known: Iterable[str]) -> str:
    """Return the known word that is meant most likely, nothing when none is near."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def command_meant(word: str, commands: Iterable[str]) -> str:
    """Return the command that a word which is none means most likely."""
    commands = list(commands)
    lowered = word.lower().replace("_", "-")
    if lowered in commands:
        return lowered
    meant = _MEANT_BY_COMMAND.get(lowered, "")
    return meant if meant in commands else near(lowered, commands)


class Parser(argparse.ArgumentParser):
    """A parser that takes requirements and options in any order, and whose errors are one line and a way out."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse; requirements that stand behind an option are requirements as well."""
        found, left = self.parse_known_args(args, namespace)
        if left and hasattr(found, "requirements") and not any(word.startswith("-") for word in left):
            found.requirements = [*found.requirements, *left]
        elif left:
            self.error("unrecognized arguments: " + " ".join(left))
        return found

    def error(self, message: str) -> NoReturn:
        """Say what is not understood and what may be meant, and end."""
        unknown = _UNKNOWN.fullmatch(message)
        told = self._about_unknown(unknown[1].split()) if unknown is not None else message
        print(f"{self.prog}: error: {told}", file=sys.stderr)
        print(f"`{self.prog} --help` lists its arguments", file=sys.stderr)
        sys.exit(Exit.COMMAND_LINE)

    def _about_unknown(self, words: Sequence[str]) -> str:
        option = next((word for word in words if word.startswith("-")), "").partition("=")[0]
        if not option:
            return "it takes no " + " ".join(repr(word) for word in words)
        known = [name for name in self._option_string_actions if name.startswith("--")]
        meant = _MEANT_BY_OPTION.get(option, "")
        if meant.startswith("--") and meant.split()[0] not in known:
            meant = ""
        meant = meant or next((name for name in known if name.startswith(option)), "") or near(option, known)
        return f"no option is called {option}" + (f"; did you mean {meant}?" if meant else "")
