"""The argument parser: it accepts words in any order, and its errors are one line with a suggestion."""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

from gpusetup.cli.output import terminal_columns
from gpusetup.errors import Exit, shipped

_UNKNOWN = r"(?s)unrecognized arguments: (.*)"
_GPU = (
    r"(?<![^\0])(--gpu[\0=])((?:\d{1,2}\0?(?:[x\u00d7*]\0?)?)?(?:(?:[rg]tx(?:\0pro)?|gt)\0\d{3,4}(?:\0ti)?|[^\0-][^\0]*)"
    r"(?:\0[x\u00d7*]\0?\d{1,2}(?![^\0]))?)"
)
"""`--gpu 8 x rtx 4090`: these words are one GPU's, also without quotes."""


@cache
def tables() -> dict[str, Any]:
    """Return the command line's data: words of other programs, rare options, columns of tables, texts of states."""
    found: dict[str, Any] = json.loads(shipped("cli/data/tables.json"))
    return found


def near(word: str, known: Iterable[str]) -> str:
    """Return the most similar known word, or an empty string."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def likely_commands(word: str, commands: Iterable[str]) -> list[str]:
    """Return the commands that an unknown word most likely means: `history` is the last word of two."""
    commands = list(commands)
    lowered = word.lower().replace("_", "-")
    if lowered in commands:
        return [lowered]
    by_last_word = [name for name in commands if name.endswith(f" {lowered.rpartition(' ')[2]}")]
    said: dict[str, str] = tables()["meant_by_command"]
    if (meant := said.get(lowered, "")) in commands or by_last_word:
        return [meant] if meant in commands else by_last_word
    nearest = near(lowered, [*commands, *(word for word in said if said[word] in commands)])
    return [said.get(nearest, nearest)] if nearest else []


def rare_options(name: str, parser: "Parser") -> list[argparse.Action]:
    """Return a command's options that only `--help-all` shows."""
    rare = {*tables()["rare"][""], *tables()["rare"].get(name, ())}
    return [one for one in parser.arguments if rare & set(one.option_strings)]


def listed(names: Mapping[str, str]) -> str:
    """Return names and their summaries as lines wrapped to the terminal."""
    width, columns = max(map(len, names)) + 4, terminal_columns()
    beside = columns - width > 24
    margin = " " * (width if beside else 6)
    told = []
    for name, summary in names.items():
        text = textwrap.fill(summary, columns, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
        told.append(f"  {name}".ljust(width) + text[width:] if beside else f"  {name}\n{text}")
    return "\n".join(told)


def _filled(text: str) -> str:
    """Wrap the paragraphs of a text to the terminal, and break indented lines that are wider."""
    columns = max(terminal_columns() - 2, 20)
    lines, paragraph = list[str](), list[str]()
    for line in [*text.strip().splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        lines += textwrap.wrap(" ".join(paragraph), columns, break_on_hyphens=False)
        lines += [line] if len(line) <= columns + 2 else _broken(line, columns + 2)
        paragraph = []
    return "\n".join(lines).rstrip()


def _broken(line: str, columns: int) -> list[str]:
    """Return an example with its remark on another line, and its command wrapped as a shell reads it."""
    command, _, remark = re.sub(r"(?<=\S)  +", "\0", line, count=1).partition("\0")
    lines: list[str] = []
    for part in re.split(r" (?=-|&& |> )", command):
        if lines and len(lines[-1]) + len(part) + 3 > columns and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(f"      {part}")
        else:
            lines[-1:] = [" ".join([*lines[-1:], part])]
    margin = " " * 6
    return lines + textwrap.wrap(remark, columns, initial_indent=margin, subsequent_indent=margin)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A help layout with room for an option, its value and its help on one line."""

    def __init__(self, prog: str, **shape: Any) -> None:
        super().__init__(prog, **{"max_help_position": 30, "width": terminal_columns() - 2, **shape})

    def start_section(self, heading: str | None) -> None:
        """Begin a group of options; wrap its heading."""
        super().start_section(heading and textwrap.fill(heading, self._width))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return an option with all its names and its value once: `--limit, -l PATTERN`."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class HelpAll(argparse.Action):
    """`--help-all`: print the help with every option, and exit."""

    def __call__(self, parser: Any, *_rest: Any, **_more: Any) -> None:
        """Print it."""
        print(parser.format_help(whole=True), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser that accepts requirements and options in any order; its errors are one line and a hint."""

    below: Mapping[str, str] = {}
    """Its subcommands and their summaries."""
    rare: Sequence[argparse.Action] = ()
    """The options that only `--help-all` shows."""
    given: frozenset[argparse.Action] = frozenset()
    """The options of the command line that is being parsed."""

    @property
    def arguments(self) -> list[argparse.Action]:
        """Its positional arguments and its options."""
        return self._actions

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse arguments; requirements, and an optional argument such as INVENTORY, may also follow an option."""
        self.given = frozenset()
        told = re.sub(_GPU, lambda of: of[1] + of[2].replace("\0", " "), "\0".join(args or ()), flags=re.IGNORECASE)
        found, left = self.parse_known_args(told.split("\0") if args else args, namespace)
        free = [one.dest for one in self._actions if one.nargs == "?" and not one.option_strings]
        if len(left) == 1 and free and getattr(found, free[0]) is None and not left[0].startswith("-"):
            setattr(found, free[0], left.pop())
        if left and hasattr(found, "requirements") and not any(word.startswith("-") for word in left):
            found.requirements = [*found.requirements, *left]
        elif left:
            self.error("unrecognized arguments: " + " ".join(left))
        return found

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Return a value; an empty one, as of an unset variable, is never meant: `apply ''` is not this machine."""
        if action in self.given and isinstance(action, self._registry_get("action", "store")):
            raise argparse.ArgumentError(action, "given twice: it takes one value")
        self.given |= {action} if action.option_strings else set()
        if action.nargs != "*" and any(not text.strip() for text in arg_strings):
            raise argparse.ArgumentError(action, "its value is empty; give one, or leave it out")
        return super()._get_values(action, arg_strings)

    def format_help(self, *, whole: bool = False) -> str:
        """Return the help, with the rare options only if `whole`."""
        hidden = {} if whole else {action: action.help for action in self.rare}
        usage, description, epilog = self.usage, self.description, self.epilog
        for action in hidden:
            action.help = argparse.SUPPRESS
        if self.usage is None:
            self.usage = " ".join([self.prog, "[OPTION …]", *self._positionals_shown()])
        self.description = _filled(description or "")
        more = [f"more commands:\n{listed(self.below)}"] if self.below else []
        more += [f"{self.prog} --help-all shows all options."] if hidden else []
        self.epilog = "\n\n".join([*([epilog] if epilog else []), *more])
        try:
            return super().format_help()
        finally:
            self.usage, self.description, self.epilog = usage, description, epilog
            for action, text in hidden.items():
                action.help = text

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help; unlike argparse's method, raise an error if that fails."""
        (file or sys.stderr).write(message)

    def _positionals_shown(self) -> list[str]:
        """Return the positional arguments as a usage line shows them."""
        formatter = self._get_formatter()
        formatter.add_usage(None, [one for one in self._actions if not one.option_strings], (), prefix="")
        return formatter.format_help().split()[len(self.prog.split()) :]

    def error(self, message: str) -> NoReturn:
        """Print the error with a suggestion, and exit."""
        from gpusetup.components.parsing import without_logins

        unknown = re.fullmatch(_UNKNOWN, message)
        told = self._about_unknown(unknown[1].split()) if unknown is not None else message
        print(f"{self.prog}: error: {without_logins(told)}", file=sys.stderr)
        print(f"`{self.prog} --help` lists its arguments", file=sys.stderr)
        sys.exit(Exit.COMMAND_LINE)

    def _about_unknown(self, words: Sequence[str]) -> str:
        option = next((word for word in words if word.startswith("-")), "").partition("=")[0]
        if not option:
            return "it takes no " + " ".join(repr(word) for word in words)
        if option in {"--yes", "-y", "--assume-yes"}:
            return f"no option is called {option}: `{self.prog}` asks no questions"
        known = [name for name in self._option_string_actions if name.startswith("--")]
        meant = tables()["meant_by_option"].get(option, "")
        if meant.startswith("--") and meant.split()[0] not in known:
            meant = ""
        from gpusetup.model.request import COMPONENTS

        if {"--gpu", "--want"}.intersection(known) and (name := option[2:].removesuffix("-version")) in COMPONENTS:
            meant = f"{'--want ' if '--want' in known else ''}{name}==VERSION"
        meant = meant or next((name for name in known if name.startswith(option)), "") or near(option, known)
        return f"no option is called {option}" + (f"; did you mean {meant}?" if meant else "")
