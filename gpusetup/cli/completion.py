"""Print a shell's completion of gpusetup's commands, options, GPUs, systems and components.

examples:
  eval "$(gpusetup export completion bash)"                                     in ~/.bashrc
  eval "$(gpusetup export completion zsh)"                                      in ~/.zshrc
  gpusetup export completion fish > ~/.config/fish/completions/gpusetup.fish
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.cli.output import write_answer
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    ParserOf = Callable[[str], argparse.ArgumentParser]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    parser.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    parser.set_defaults(format="text")


def run(arguments: argparse.Namespace) -> Exit:
    """Print the completion script."""
    from argcomplete.shell_integration import shellcode

    write_answer(shellcode(["gpusetup"], shell=arguments.shell), arguments.out)
    return Exit.DONE


def add_commands(parser: argparse.ArgumentParser, typed: Sequence[str], known_as: ParserOf) -> None:
    """Add all command names, and the arguments of the command being typed (`matrix import` has two words)."""
    from gpusetup.cli.commands import ALIASES, COMMANDS, WITHOUT_OWN, below, first_words

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


def _with_values(name: str, known_as: ParserOf, further: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a command's parser with completions from the matrix; `further` also completes its first argument."""
    parser = known_as(name)
    for action in parser._actions:  # noqa: SLF001 - argparse offers no other list of them
        if (
            completer := _documents
            if name == "export schema" and action.dest == "name"
            else _COMPLETERS.get(action.dest)
        ):
            action.completer = completer  # type: ignore[attr-defined]
    if further:
        first = next(action for action in parser._actions if not action.option_strings)  # noqa: SLF001
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
