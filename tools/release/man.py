"""Manual pages, written from the same help that `--help` prints."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from gpusetup import __version__
from gpusetup.cli.commands import COMMANDS
from gpusetup.cli.main import command_parser, top_parser

SECTION = 1
_EXAMPLES = "examples:"


def pages() -> dict[str, str]:
    """Return every page by its file name: gpusetup.1, gpusetup-apply.1, …"""
    found = {f"gpusetup.{SECTION}": _overview()}
    for name, (_, summary) in COMMANDS.items():
        title = _title(name)
        found[f"{title}.{SECTION}"] = _page(command_parser(name), title, summary)
    return found


def _title(name: str) -> str:
    return f"gpusetup-{name.replace(' ', '-')}"


def _overview() -> str:
    parser = top_parser()
    first = (parser.description or "").partition("\n")[0].rstrip(".")
    lines = [*_head("gpusetup", first[:1].lower() + first[1:]), ".SH SYNOPSIS", *_synopsis(parser), ".SH COMMANDS"]
    for name, (_, summary) in COMMANDS.items():
        lines += [".TP", rf"\fBgpusetup {_escaped(name)}\fR", _escaped(summary)]
    lines += [".SH EXIT STATUS", _escaped((parser.epilog or "").partition("Exit codes: ")[2].replace("\n", " "))]
    lines += [".SH SEE ALSO", ",\n".join(rf".BR {_escaped(_title(name))} ({SECTION})" for name in COMMANDS)]
    return _text(line.replace(",", " ,") if line.startswith(".BR") else line for line in lines)


def _page(parser: argparse.ArgumentParser, name: str, summary: str) -> str:
    description, _, examples = (parser.description or "").partition(_EXAMPLES)
    lines = [*_head(name, summary), ".SH SYNOPSIS", *_synopsis(parser), ".SH DESCRIPTION", *_paragraphs(description)]
    for group in parser._action_groups:  # noqa: SLF001 - argparse offers no other list of them
        actions = [action for action in group._group_actions if action.help != "==SUPPRESS=="]  # noqa: SLF001
        if not actions:
            continue
        lines.append(f".SH {_escaped((group.title or 'options').upper())}")
        for action in actions:
            lines += [".TP", rf"\fB{_escaped(_invocation(parser, action))}\fR", _escaped(_help(parser, action))]
    if examples:
        lines += [".SH EXAMPLES", ".nf", *(_escaped(line.strip()) for line in examples.strip().splitlines()), ".fi"]
    lines += [".SH SEE ALSO", f".BR gpusetup ({SECTION})"]
    return _text(lines)


def _head(name: str, summary: str) -> list[str]:
    return [
        f'.TH "{_escaped(name.upper())}" "{SECTION}" "" "gpusetup {__version__}" "User Commands"',
        ".SH NAME",
        rf"{_escaped(name)} \- {_escaped(summary)}",
    ]


def _synopsis(parser: argparse.ArgumentParser) -> list[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    program = parser.prog
    return [rf"\fB{_escaped(program)}\fR{_escaped(usage.removeprefix(program))}"]


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        kept = any(line.startswith("  ") for line in part.splitlines())  # a table of ours stays one
        if kept:
            yield ".nf"
        yield from (_escaped(line) for line in part.splitlines())
        if kept:
            yield ".fi"


def _invocation(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._format_action_invocation(action)  # noqa: SLF001


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001


def _escaped(text: str) -> str:
    """Return text escaped for troff."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + text if text.startswith((".", "'")) else text


def _text(lines: Iterator[str] | list[str]) -> str:
    return "\n".join(lines) + "\n"
