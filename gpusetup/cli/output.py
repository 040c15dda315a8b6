"""Write answers to standard output or a file, everything else to standard error."""

import argparse
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import IO, Any, Literal

from gpusetup.errors import BadInputError, Exit, GpuSetupError

_NARROW = 60
_COMMAND = r"(?:^ *|: +|\$ )(?:sudo|gpusetup|pip|uv|conda|ansible|python[0-9.]*|\.venv/bin/python) "
"""Marks a line as a command to copy, which is never wrapped."""
_GRAVE = r"(?m)\b(?:FAILED|FAIL|CAUSE|WARN)\b|^  refused\b"
"""The words that `painted` colours."""
_COLOUR = "\x1b\\[[0-9;]*m"
"""Belongs on a terminal, not in a file."""
_OWN_COLOUR = "\x1b\\[(?:0|1|2|(?:1;)?3[1-6])?m"
"""What gpusetup writes itself. Others hide text, so a host must not send them."""


class _Nowhere(io.TextIOBase):
    """A stream that discards text, for --quiet."""

    def write(self, text: str) -> int:
        return len(text)


_QUIET = False


def set_quiet(quiet: bool) -> None:
    """Suppress or show everything but answers and errors."""
    global _QUIET  # noqa: PLW0603 - one process runs one command
    _QUIET = quiet


def aside() -> IO[str]:
    """Return the stream for progress, warnings and notes."""
    return _Nowhere() if _QUIET else sys.stderr  # type: ignore[return-value]


def say(text: str) -> None:
    """Print a line that is not part of the answer."""
    from gpusetup.components.parsing import without_logins

    print(shown(without_logins(text), sys.stderr), file=aside(), flush=True)


def shown(text: str, stream: IO[str]) -> str:
    """Return a text for a stream: of what can drive a terminal it has lines and, if shown there, our own colours."""
    return "\n".join(line if line.isprintable() else _shown(line, stream) for line in text.split("\n"))


def _shown(line: str, stream: IO[str]) -> str:
    from gpusetup.model import visible

    parts = re.split(f"({_OWN_COLOUR})", line) if coloured(stream) else [line]
    return "".join(part if number % 2 else visible(part, "\t") for number, part in enumerate(parts))


def json_text(document: object) -> str:
    """Return a document as indented JSON."""
    import msgspec

    return msgspec.json.format(json_line(document), indent=2) + "\n"


def json_line(document: object) -> str:
    """Return a document as one line of JSON, without a newline."""
    import msgspec

    try:
        return msgspec.json.encode(document).decode()
    except UnicodeEncodeError:  # a file name need not be UTF-8; a JSON document has to be
        from gpusetup.drive.runner import escaped

        return escaped(msgspec.to_builtins(document))


def write_folder(folder: str, texts: Mapping[str, str], reference: str, what: str, command: str) -> None:
    """Write texts below a folder by their file names; scripts become executable."""
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
    """Write the answer to standard output, or to the file `out`."""
    text = shown(text if text.endswith("\n") else text + "\n", sys.stdout)
    if out is None:
        sys.stdout.write(_narrowed(text))
        sys.stdout.flush()
        return
    try:
        os.makedirs(os.path.dirname(out) or ".", exist_ok=True)  # noqa: PTH103, PTH120 - importing pathlib slows lookups
        _write_whole(out, re.sub(_COLOUR, "", text))
    except OSError as error:
        raise BadInputError(
            "GS-103", f"cannot write {out}: {error.strerror}", path=out, hint="give another file with --out"
        ) from error
    say(f"written to {out}")


def size_text(size: int | None) -> str:
    """Return a number of bytes as readable text."""
    if size is None:
        return "size not known"
    if size < 1_000_000:
        return f"{size / 1000:.0f} kB"
    return f"{size / 1_000_000:.0f} MB" if size < 10_000_000_000 else f"{size / 1_000_000_000:.1f} GB"


def answer(form: str, document: Any, text: str | Callable[[], str], out: str | None) -> Exit:
    """Write an answer as its document if the format is JSON, else as its text, which may be made only then."""
    write_answer(json_text(document) if form == "json" else text if isinstance(text, str) else text(), out)
    return Exit.DONE


def _write_whole(out: str, text: str) -> None:
    """Replace a file atomically: a full disk or Ctrl-C keeps the old one. Write pipes and devices directly."""
    from pathlib import Path

    from gpusetup.drive.rundir import write_whole

    target = Path(os.path.realpath(out))
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
        return
    os.umask(unset := os.umask(0))  # it can only be read by setting it
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~unset
    write_whole(target, text.encode("utf-8", "backslashreplace"), mode)


def _narrowed(text: str, *, verbatim: tuple[str, ...] = ()) -> str:
    """Wrap a text for a narrow terminal, or one with lines kept `verbatim` for any; commands stay, to be copied."""
    width = terminal_columns()
    if (width >= _NARROW and not verbatim) or max(map(len, text.splitlines()), default=0) <= width:
        return text
    lines, fenced = list[str](), False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        indent = " " * (len(line) - len(line.lstrip()))
        copied = fenced or re.search(_COMMAND, line) or line.endswith("\\") or (lines and lines[-1].endswith("\\"))
        if copied or len(line) <= width or line.startswith(verbatim):
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines) + "\n"


def terminal_columns() -> int:
    """Return the terminal's width, or 80. `shutil`, which does the same, costs a lookup a tenth of its time."""
    if (named := os.environ.get("COLUMNS", "")).isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


def wrapped(text: str, first: str = "  ", rest: str = " " * 11) -> list[str]:
    """Return a text of a report as lines of 80 columns."""
    lines = textwrap.wrap(
        text, 80, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
    return lines or [first.rstrip()]


def hint(ways: Iterable[str]) -> list[str]:
    """Return a hint with each of several ways out on a line of its own."""
    return "hint: {}".format("\n  or: ".join(ways)).split("\n")


def warn(text: str) -> None:
    """Print a warning."""
    say(("\x1b[33mwarning:\x1b[0m " if coloured(sys.stderr) else "warning: ") + text)


def print_error(error: GpuSetupError, output_format: str) -> None:
    """Print an error as text on standard error, and for JSON as a document on standard output."""
    from gpusetup.components.parsing import without_logins
    from gpusetup.model import visible

    as_json = visible(without_logins(json_text(error.to_document())), "\n") if output_format == "json" else ""
    if as_json and sys.stdout.isatty():
        sys.stdout.write(as_json)
        return  # where the document goes into a file, the terminal shows the text below
    lines = [f"error: {error.message} [{error.reference}]"]
    if error.path:
        lines.append(f"  at: {error.path}")
    lines += [f"  {text}" for text in (error.context, error.note) if text]
    if error.hint:
        lines += ["", *hint(error.hint.split("; or "))]
    if error.link:
        lines.append(f"more: {error.link}")
    # Escape control characters, which a file or an option may contain, and cut endless words.
    text = visible("\n".join(lines), "\n\t")
    text = re.sub(r"(\S{200})\S{200,}", r"\1…", without_logins(text))
    if coloured(sys.stderr):
        text = f"\x1b[1;31merror:\x1b[0m{text.removeprefix('error:')}"
    print(text, file=sys.stderr)
    sys.stdout.write(as_json)


def coloured(stream: IO[str]) -> bool:
    """Return whether to colour a stream; NO_COLOR and FORCE_COLOR override the check for a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def painted(text: str) -> str:
    """Return a text with its grave words coloured, if standard output shows colours."""
    if not coloured(sys.stdout):
        return text
    return re.sub(_GRAVE, lambda match: f"\x1b[{'33' if match[0] == 'WARN' else '1;31'}m{match[0]}\x1b[0m", text)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """Return a table that fits the terminal; a narrow one gets a block per row."""
    rows = [tuple(row) for row in rows]
    width = terminal_columns()
    if width < _NARROW and width < sum(max(map(len, column)) + 2 for column in zip(columns, *rows, strict=True)):
        return _blocks(columns, rows, width, title)
    return _grid(columns, rows, title, width)


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, title: str) -> str:
    lines = [title] if title else []
    for row in rows:
        lines.append(f"{columns[0]} {row[0]}".strip())
        shape: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "    ", "break_on_hyphens": False}
        for name, cell in zip(columns[1:], row[1:], strict=True):
            lines += textwrap.wrap(f"{name}: {cell}", width - 2, break_long_words=False, **shape) if cell else []
    return "\n".join(lines) + "\n"


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str, width: int) -> str:
    """Return a table as lines; while it is too wide, its widest column gives way. rich would double a lookup's time."""
    cells = [columns, *rows]
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in zip(*cells, strict=True)]
    while sum(widths) + 2 * len(widths) - 2 > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    lines = [title] if title else []
    for number, row in enumerate(cells):
        parts = [_fitted(cell, room) for cell, room in zip(row, widths, strict=True)]
        for line in zip_longest(*parts, fillvalue=""):
            text = "  ".join(part.ljust(room) for part, room in zip(line, widths, strict=True)).rstrip()
            lines.append(f"\x1b[1m{text}\x1b[0m" if number == 0 and coloured(sys.stdout) else text)
        lines += ["\u2500" * (sum(widths) + 2 * len(widths) - 2)] if number == 0 else []
    return "\n".join(lines) + "\n"


def _fitted(cell: str, width: int) -> Iterator[str]:
    for line in cell.split("\n"):
        yield from [line] if len(line) <= width else textwrap.wrap(line, width, break_on_hyphens=False)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return CSV."""
    import csv

    target = io.StringIO()
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
    """Print the page of a check or cause; raise an error with similar names for an unknown one."""
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
    from gpusetup.model.documents import Explained

    document = Explained(kind=what, name=name, page=pages[name]())
    whole = arguments.out or not sys.stdout.isatty()
    page = document.page if whole else _narrowed(document.page, verbatim=("    ", "|"))
    return answer(arguments.format, document, page, arguments.out)
