"""`gpusetup COMMAND …`: find the command, run it, turn failures into a message and an exit code."""

import argparse
import errno
import os
import sys
from collections.abc import Callable

from gpusetup import __version__
from gpusetup.cli import streams
from gpusetup.cli.commands import (
    ALIASES,
    COMMANDS,
    GROUPS,
    WITHOUT_OWN,
    add_completions,
    below,
    first_words,
    load_command,
)
from gpusetup.cli.grammar import HelpAll, HelpFormatter, Parser, likely_commands, listed, rare_options
from gpusetup.errors import BadInputError, Exit, GpuSetupError, PreflightError

_EPILOG = (
    "gpusetup COMMAND --help explains a command. Exit codes: 0 done, 2 command line,\n"
    "3 bad input, 4 no stack fits, 5 refused before any change, 6 unreachable,\n"
    "7 failed part-way, 8 verification failed, 9 pending, 130 interrupted."
)


def _all_words() -> str:
    words = first_words()
    width = max(map(len, words))
    under = {word: ", ".join(below(word)) for word in words}
    shown = {word.ljust(width): f"{text} ({under[word]})" if under[word] else text for word, text in words.items()}
    return "\n\n".join(
        f"{heading}:\n" + listed({word.ljust(width): shown[word.ljust(width)] for word in group})
        for heading, group in GROUPS.items()
    )


def top_parser() -> argparse.ArgumentParser:
    """Return the parser of the options without a command."""
    parser = Parser(
        prog="gpusetup",
        usage="gpusetup [--version [--verbose] [--format json]] COMMAND …",
        description="One proven NVIDIA stack for these hosts.\n\n" + _all_words(),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    about_lines = "show gpusetup's version; with --verbose or --format json, all it works with and where that is"
    parser.add_argument("--version", action="version", version=f"gpusetup {__version__}", help=about_lines)
    return parser


def command_parser(name: str) -> Parser:
    """Import a command's module and return its parser."""
    command = load_command(name)
    parser = Parser(
        prog=f"gpusetup {name}", description=command.__doc__, formatter_class=HelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--quiet", "-q", action="store_true", help="only answers and errors, no progress")
    command.add_arguments(parser)
    parser.set_defaults(command=name)
    parser.below = {f"gpusetup {name} {word}": COMMANDS[f"{name} {word}"][1] for word in below(name)}
    if rare := rare_options(name, parser):
        parser.rare = rare
        parser.add_argument("--help-all", action=HelpAll, nargs=0, help="show all options, the rare ones too")
    return parser


def _only_first(word: str, rest: list[str]) -> Exit:
    """Print the subcommands of a word that is no command itself, or reject an unknown subcommand."""
    if rest and not rest[0].startswith("-"):
        return _unknown(" ".join([word, rest[0]]))
    print(f"usage: gpusetup {word} COMMAND …\n\n{WITHOUT_OWN[word]}\n\ncommands:")
    print(listed({f"gpusetup {word} {second}": COMMANDS[f"{word} {second}"][1] for second in below(word)}))
    return Exit.DONE


def _complete() -> None:
    """Print the shell's completions; import only the command being typed."""
    import argcomplete

    parser = top_parser()
    add_completions(parser, os.environ.get("COMP_LINE", "").split()[1:3], command_parser)
    argcomplete.autocomplete(parser)


def _unknown(name: str) -> Exit:
    meant = " or ".join(f"`gpusetup {one}`" for one in likely_commands(name, COMMANDS))
    hint = f"; did you mean {meant}?" if meant else "; `gpusetup --help` lists the commands"
    print(f"gpusetup: no command is called {name!r}{hint}", file=sys.stderr)
    return Exit.COMMAND_LINE


def _run(argv: list[str]) -> Exit:
    name = argv[0]
    parser = command_parser(name)
    arguments = _parsed(parser, argv[1:])
    from gpusetup.cli.output import set_quiet

    set_quiet(arguments.quiet)

    def command() -> Exit:
        from gpusetup.cli.options import check_arguments, refuse_idle

        refuse_idle(arguments, parser)
        check_arguments(arguments, parser)
        return load_command(name).run(arguments)

    return command() if arguments.debug else _explained(command, getattr(arguments, "format", "text"))


def _explained(command: Callable[[], Exit], form: str = "text") -> Exit:
    """Run a command; print a failure that can be explained, and return its exit code."""
    try:
        return command()
    except GpuSetupError as error:
        return _print_failure(error, form)
    except OSError as error:
        if (told := _file_trouble(error)) is None:
            raise
        return _print_failure(told, form)
    except MemoryError:
        return _print_failure(BadInputError("GS-105", "the files that were named do not fit into memory"), form)
    except ValueError as error:  # Python reads no number of thousands of digits: it would take too long
        if "integer string conversion" not in str(error):
            raise
        return _print_failure(BadInputError("GS-140", "a number has thousands of digits"), form)


def _print_failure(error: GpuSetupError, form: str = "text") -> Exit:
    from gpusetup.cli.output import print_error

    try:
        print_error(error, form)
        sys.stdout.flush()
    except (OSError, streams.UnwrittenError):  # nobody reads the message; the exit code stays
        streams.dropped(sys.stdout, sys.stderr)
    return error.exit


def _parsed(parser: Parser, words: list[str]) -> argparse.Namespace:
    """Parse a command's arguments; if it runs Ansible, those after `--` are Ansible's."""
    if parser.get_default("ansible_arguments") is None or "--" not in words:
        whole: argparse.Namespace = parser.parse_args(words)
        return whole
    end = words.index("--")
    arguments: argparse.Namespace = parser.parse_args(words[:end])
    arguments.ansible_arguments = words[end + 1 :]
    return arguments


_NEEDED = ("ansible", "argcomplete", "jinja2", "msgspec", "packaging", "requests", "rich", "tomli", "urllib3")
"""What gpusetup imports of other projects."""
_PACKAGES = {"ansible": "ansible-core", "gpusetup_fleet": "gpusetup[fleet]"}
"""The packages that are not called as their modules are."""
_UNUSABLE = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.EIO}


def _file_trouble(error: OSError) -> GpuSetupError | None:
    """Return an explained error if the disk or a limit is full, or a named file is unusable, else None."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    if where and error.errno in _UNUSABLE:
        return BadInputError("GS-105", f"cannot use {where}: {error.strerror}", path=where)
    if error.errno == errno.ENOENT and not where:  # only getcwd names no file
        return BadInputError("GS-105", "the current folder no longer exists", hint="change to a folder that exists: cd")
    if error.errno not in _FULL:
        return None
    return PreflightError(
        "GS-414",
        f"cannot write files on this machine: {error.strerror}" + (f" ({where})" if where else ""),
        path=where,
        note="the run was stopped; hosts finish the current step and record its result",
    )


def _asked_in_full(argv: list[str]) -> str:
    """Return the format of `--version` with `--verbose` or `--format json`; empty for any other command line."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--format=") else [word])]
    rest = [word for word in words if word not in {"--version", "--verbose"}]
    if "--version" not in words or rest not in ([], ["--format", "text"], ["--format", "json"]):
        return ""
    return rest[1] if rest and (rest[1] == "json" or "--verbose" in words) else "text" if "--verbose" in words else ""


def _versions(form: str) -> Exit:
    from gpusetup.cli.about import about, about_lines
    from gpusetup.cli.output import json_text

    found = about()
    if form == "json":
        print(json_text(found), end="")
    else:
        print("\n".join(about_lines(found)))
    return Exit.DONE


def _plain_words(argv: list[str]) -> list[str]:
    """Replace `help`, `help COMMAND` and `version` by the equivalent options."""
    if argv[:1] == ["version"]:
        return ["--version", *argv[1:]]
    if argv[:1] == ["help"]:
        return [*argv[1:3], "--help"]
    return argv


def _one_name(argv: list[str]) -> list[str]:
    """Resolve aliases, and join a command's name of two words such as `matrix import`."""
    name = " ".join(argv[:2])
    if name in COMMANDS:
        return [name, *argv[2:]]
    return [ALIASES.get(argv[0], argv[0]), *argv[1:]] if argv else argv


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    streams.prepare()
    argv = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    try:
        try:
            return _answered(_one_name(_plain_words(argv)) or ["--help"])
        finally:  # also on the SystemExit that ends help
            sys.stdout.flush()
    except streams.UnwrittenError as error:
        return _print_failure(error)
    except BrokenPipeError:
        streams.dropped(sys.stdout)
        return Exit.DONE


def _answered(argv: list[str]) -> int:
    in_full = _asked_in_full(argv)
    try:
        if in_full:
            return _explained(lambda: _versions(in_full), in_full)
        late = next((word for word in argv[1:] if word in COMMANDS), "")
        if late and argv[0] not in {*COMMANDS, *WITHOUT_OWN, "-h", "--help", "--version"}:
            print(f"gpusetup: the command comes first: gpusetup {late} … {argv[0]}", file=sys.stderr)
            return Exit.COMMAND_LINE
        if argv[0].startswith("-"):
            top_parser().parse_args(argv)
            return Exit.DONE
        if argv[0] in WITHOUT_OWN:
            return _only_first(argv[0], argv[1:])
        if argv[0] not in COMMANDS:
            return _unknown(argv[0])
        return int(_run(argv))
    except (BrokenPipeError, streams.UnwrittenError):
        raise
    except Exception as error:  # noqa: BLE001 - the last line of defence: reported as a bug
        if isinstance(error, ModuleNotFoundError) and error.name in (*_NEEDED, *_PACKAGES):
            from gpusetup.content import how_to_install

            install = how_to_install(_PACKAGES.get(error.name, error.name))
            print(f"gpusetup: {sys.executable} lacks {error.name}, which this needs; {install}", file=sys.stderr)
            return Exit.BAD_INPUT
        import traceback

        from gpusetup.components.parsing import without_logins

        print(without_logins(traceback.format_exc()), end="", file=sys.stderr)
        print("gpusetup: this is a bug in gpusetup; please report the lines above", file=sys.stderr)
        return Exit.BUG


if __name__ == "__main__":
    sys.exit(main())
