"""The command table: a command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
import json
import pkgutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit


class Command(Protocol):
    """The interface of a command's module; its docstring is the help text."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, arguments: argparse.Namespace) -> Exit:
        """Run the command, print the answer, return the exit code."""


_TOLD = json.loads(pkgutil.get_data("gpusetup.cli", "data/commands.json") or b"")
COMMANDS: dict[str, tuple[str, str]] = {name: (place, summary) for name, (place, summary) in _TOLD["commands"].items()}
"""A command's full name of one or two words → its module and its summary.

A module with several commands is written `MODULE:WORD` and has `run_WORD`, whose docstring is the help, and
`add_WORD_arguments`.
"""
WITHOUT_OWN: dict[str, str] = _TOLD["without_own"]
"""First words that are not commands themselves → their summaries."""
ALIASES: dict[str, str] = _TOLD["aliases"]
"""Short names → the full names of commands."""
GROUPS: dict[str, list[str]] = _TOLD["groups"]
"""The first words by heading, as in `gpusetup --help`."""


def first_words() -> dict[str, str]:
    """Return each first word with its summary, in the order of the groups."""
    return {word: WITHOUT_OWN.get(word) or COMMANDS[word][1] for words in GROUPS.values() for word in words}


def below(word: str) -> list[str]:
    """Return the subcommands of a first word."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{word} ")]


def load_command(name: str) -> Command:
    """Import a command's module and return the command."""
    place, _, word = COMMANDS[name][0].partition(":")
    module = importlib.import_module(f"gpusetup.cli.{place}")
    if not word:
        return cast("Command", module)
    run, arguments = getattr(module, f"run_{word}"), getattr(module, f"add_{word}_arguments")
    return cast(
        "Command", SimpleNamespace(__doc__=run.__doc__.replace("\n    ", "\n"), add_arguments=arguments, run=run)
    )
