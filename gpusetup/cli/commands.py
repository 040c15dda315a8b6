"""The command table, and its completion by shells: a command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

from gpusetup.errors import shipped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from gpusetup.cli.grammar import Parser
    from gpusetup.errors import Exit

    ParserOf = Callable[[str], Parser]


class Command(Protocol):
    """The interface of a command's module; its docstring is the help text."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, arguments: argparse.Namespace) -> Exit:
        """Run the command, print the answer, return the exit code."""


_TOLD = json.loads(shipped("cli/data/commands.json"))
COMMANDS: dict[str, tuple[str, str]] = {name: (place, summary) for name, (place, summary) in _TOLD["commands"].items()}
"""A command's full name of one or two words → its module and its summary.

A module with several commands is written `MODULE:WORD` and has `run_WORD`, whose docstring is the help, and
`add_WORD_arguments`. Those of gpusetup_fleet need not be installed.
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
    module = importlib.import_module(place)
    if not word:
        return cast("Command", module)
    run, arguments = getattr(module, f"run_{word}"), getattr(module, f"add_{word}_arguments")
    return cast(
        "Command", SimpleNamespace(__doc__=run.__doc__.replace("\n    ", "\n"), add_arguments=arguments, run=run)
    )


def add_completions(parser: argparse.ArgumentParser, typed: Sequence[str], known_as: ParserOf) -> None:
    """Add all command names, and the arguments of the command being typed (`matrix import` has two words)."""
    name, whole = typed[0] if typed else "", " ".join(typed)
    commands = parser.add_subparsers()
    for known in (*first_words(), *ALIASES):
        if known != name:
            commands.add_parser(known, add_help=False)
        elif whole in COMMANDS and whole != name:
            second = commands.add_parser(known, add_help=False).add_subparsers()
            second.add_parser(typed[1], parents=[_with_values(whole, known_as)], add_help=False)
        elif known in WITHOUT_OWN:
            second = commands.add_parser(known, add_help=False).add_subparsers()
            for word in below(known):
                second.add_parser(word, add_help=False)
        else:
            parents = [_with_values(ALIASES.get(known, known), known_as, below(known))]
            commands.add_parser(known, parents=parents, add_help=False)


def _with_values(name: str, known_as: ParserOf, further: Sequence[str] = ()) -> Parser:
    """Return a command's parser with completions from the matrix; `further` also completes its first argument."""
    parser = known_as(name)
    for action in parser.arguments:
        if (
            completer := _documents
            if name == "export schema" and action.dest == "name"
            else _COMPLETERS.get(action.dest)
        ):
            action.completer = completer  # type: ignore[attr-defined]
    if further:
        first = next(action for action in parser.arguments if not action.option_strings)
        first.completer = _also(further, getattr(first, "completer", None))  # type: ignore[attr-defined]
    return parser


def _also(words: Sequence[str], completer: Callable[..., Iterable[str]] | None) -> Callable[..., Iterable[str]]:
    def both(**told: Any) -> Iterable[str]:
        from argcomplete.completers import FilesCompleter

        return [*words, *(completer or FilesCompleter())(**told)]

    return both


def _gpus(**_: Any) -> Iterable[str]:
    from gpusetup.matrix.load import matrix

    return (gpu.name.lower() for gpu in matrix().gpus.gpus)


def _systems(**_: Any) -> Iterable[str]:
    from gpusetup.matrix.load import matrix

    return (system.id for system in matrix().os.systems)


def _components(**_: Any) -> Iterable[str]:
    from gpusetup.model.request import COMPONENTS

    return COMPONENTS


def _documents(**_: Any) -> Iterable[str]:
    from gpusetup.model.documents import documents

    return documents()


_COMPLETERS: dict[str, Callable[..., Iterable[str]]] = {
    "gpu": _gpus,
    "gpus": _gpus,
    "os": _systems,
    "requirements": _components,
    "subject": _components,
    "component": _components,
}
"""An argument's name → the function that returns its values."""
