"""Print what a shell needs to complete gpusetup's commands, options, GPUs, systems and components.

examples:
  eval "$(gpusetup completion bash)"                                     in ~/.bashrc
  eval "$(gpusetup completion zsh)"                                      in ~/.zshrc
  gpusetup completion fish > ~/.config/fish/completions/gpusetup.fish
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.cli.output import write_answer
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

__all__ = ["add_arguments", "add_values", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    parser.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    parser.set_defaults(format="text")


def run(arguments: argparse.Namespace) -> Exit:
    """Print it."""
    from argcomplete.shell_integration import shellcode

    write_answer(shellcode(["gpusetup"], shell=arguments.shell), arguments.out)
    return Exit.DONE


def add_values(parser: argparse.ArgumentParser) -> None:
    """Give the arguments whose values the matrix knows something to complete them with."""
    for action in parser._actions:  # noqa: SLF001 - argparse offers no other list of them
        if completer := _COMPLETERS.get(action.dest):
            action.completer = completer  # type: ignore[attr-defined]


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
    from gpusetup.model.documents import DOCUMENTS

    return DOCUMENTS


_COMPLETERS: dict[str, Callable[..., Iterable[str]]] = {
    "gpu": _gpus,
    "gpus": _gpus,
    "os": _systems,
    "requirements": _components,
    "subject": _components,
    "name": _documents,
}
"""The argument's name → what it may be."""
