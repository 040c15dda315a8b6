"""Where answers and errors leave the program: answers on standard output or in a file, the rest on standard error."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import IO, TYPE_CHECKING, Any, Literal

from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpusetup.errors import GpuSetupError

_NARROW = 60
_COMMAND = re.compile(r"(?:^ *|: +|\$ )(?:sudo|gpusetup|pip|uv|conda|ansible|python[0-9.]*|\.venv/bin/python) ")
"""What makes a line one to copy."""
_GRAVE = re.compile(r"\b(?:FAILED|FAIL|CAUSE|WARN)\b|^  refused\b", re.MULTILINE)
"""What a person looks for first in a text."""


class _Nowhere(io.TextIOBase):
    """Where everything beside the answer goes when only the answer is wanted."""

    def write(self, text: str) -> int:
        return len(text)


_QUIET = False


def set_quiet(quiet: bool) -> None:
    """Say from now on nothing but answers and errors, or everything."""
    global _QUIET  # noqa: PLW0603 - one process runs one command
    _QUIET = quiet


def aside() -> IO[str]:
    """Return the stream for what is said beside the answer: progress, warnings, notes."""
    return _Nowhere() if _QUIET else sys.stderr  # type: ignore[return-value]


def say(text: str) -> None:
    """Say a line beside the answer."""
    print(text, file=aside(), flush=True)


def json_text(document: object) -> str:
    """Return one JSON document as text."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def json_line(document: object) -> str:
    """Return a JSON document on one line, without the line's end."""
    import msgspec

    return msgspec.json.encode(document).decode()


def write_folder(folder: str, texts: Mapping[str, str], reference: str, what: str, command: str) -> None:
    """Write files by their names below a folder; a program among them can be run."""
    from pathlib import Path

    try:
        for name, text in texts.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)
    except OSError as error:
        raise BadInputError(
            reference,
            f"cannot write the {what}: {error.strerror}",
            path=str(error.filename or folder),
            hint=f"name a folder that you may write: {command}",
        ) from error


def write_answer(text: str, out: str | None) -> None:
    """Write the answer to standard output, or to the file that was asked for."""
    if not text.endswith("\n"):
        text += "\n"
    if out is None:
        sys.stdout.write(_narrowed(text))
        sys.stdout.flush()
        return
    try:
        os.makedirs(os.path.dirname(out) or ".", exist_ok=True)  # noqa: PTH103, PTH120 - a lookup pays for pathlib
        _write_whole(out, text)
    except OSError as error:
        raise BadInputError(
            "GS-103", f"cannot write {out}: {error.strerror}", path=out, hint="give another file with --out"
        ) from error


def _write_whole(out: str, text: str) -> None:
    """Write a file whole or not at all: a full disk or Ctrl-C leaves what was there. Pipes and devices just get it."""
    from pathlib import Path

    target = Path(out).resolve()
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        target.write_text(text, encoding="utf-8")
        return
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        if target.exists():
            partial.chmod(target.stat().st_mode & 0o7777)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _narrowed(text: str) -> str:
    """Return a text with its lines broken between words for a narrow terminal; commands stay whole, to be copied."""
    width = _columns()
    if width >= _NARROW or max(map(len, text.splitlines()), default=0) <= width:
        return text
    import textwrap

    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        command = _COMMAND.search(line) or line.endswith("\\") or (lines and lines[-1].endswith("\\"))
        lines += (
            [line]
            if command or len(line) <= width
            else textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        )
    return "\n".join(lines) + "\n"


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def warn(text: str) -> None:
    """Say something beside the answer."""
    say(("\x1b[33mwarning:\x1b[0m " if coloured(sys.stderr) else "warning: ") + text)


def print_error(error: GpuSetupError, output_format: str) -> None:
    """Print a failure for people on standard error, and for programs on standard output when they asked for JSON."""
    as_json = json_text(error.to_document()) if output_format == "json" else ""
    if as_json and sys.stdout.isatty():
        sys.stdout.write(as_json)
        return  # whoever sends the document into a file would see nothing otherwise
    lines = [f"error: {error.message} [{error.reference}]"]
    if error.path:
        lines.append(f"  at: {error.path}")
    lines += [f"  {text}" for text in (error.context, error.note) if text]
    if error.hint:
        lines += ["", f"hint: {error.hint}"]
    if error.link:
        lines.append(f"more: {error.link}")
    # What a file or an option says commands no terminal.
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: repr(found[0])[1:-1], "\n".join(lines))
    if coloured(sys.stderr):
        text = f"\x1b[1;31merror:\x1b[0m{text.removeprefix('error:')}"
    print(text, file=sys.stderr)
    sys.stdout.write(as_json)


def coloured(stream: IO[str]) -> bool:
    """Tell whether what goes to a stream has colours: FORCE_COLOR and NO_COLOR win over what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def painted(text: str, out: str | None = None) -> str:
    """Return a text with what is grave in colour, where standard output shows colours."""
    if out is not None or not coloured(sys.stdout):
        return text
    return _GRAVE.sub(lambda match: f"\x1b[{'33' if match[0] == 'WARN' else '1;31'}m{match[0]}\x1b[0m", text)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """Return a table that fits the terminal (80 columns when nobody watches); a narrow one gets a block per row."""
    rows = [tuple(row) for row in rows]
    width = _columns()
    if width < _NARROW and width < sum(max(map(len, column)) + 2 for column in zip(columns, *rows, strict=True)):
        return _blocks(columns, rows, width, title)
    return _grid(columns, rows, title)


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, title: str) -> str:
    import textwrap

    lines = [title] if title else []
    for row in rows:
        lines.append(f"{columns[0]} {row[0]}".strip())
        for name, cell in zip(columns[1:], row[1:], strict=True):
            lines += (
                textwrap.wrap(
                    f"{name}: {cell}",
                    width - 2,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                if cell
                else []
            )
    return "\n".join(lines) + "\n"


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str) -> str:
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table

    grid = Table(
        *columns,
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
    )
    for row in rows:
        grid.add_row(*row)
    target = StringIO()
    console = Console(
        file=target,
        width=None if sys.stdout.isatty() else 80,
        force_terminal=coloured(sys.stdout),
        highlight=False,
        markup=False,
        soft_wrap=False,
    )
    console.print(grid)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return CSV."""
    import csv
    from io import StringIO

    target = StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return target.getvalue()


def explain(
    arguments: argparse.Namespace,
    pages: Mapping[str, Callable[[], str]],
    what: Literal["check", "cause"],
    reference: str,
) -> Exit:
    """Print the page that was asked for; a name that nothing has is refused with those that are near."""
    import difflib

    name = arguments.explain
    if arguments.format not in {"text", "json"}:
        raise BadInputError(reference, f"--explain answers as text or json, not {arguments.format}", path="--format")
    if name not in pages:
        close = difflib.get_close_matches(name.lower(), pages, n=3, cutoff=0.4)
        raise BadInputError(
            reference,
            f"there is no {what} {name!r}",
            path="--explain",
            hint=f"did you mean {', '.join(close)}?" if close else f"there are: {', '.join(sorted(pages)[:8])}, …",
        )
    text = pages[name]()
    if arguments.format == "json":
        from gpusetup.model.documents import Explained

        text = json_text(Explained(kind=what, name=name, page=text))
    write_answer(text, arguments.out)
    return Exit.DONE
