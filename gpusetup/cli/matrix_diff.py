"""Compare two matrices, record by record.

OLD and NEW are `shipped`, the date of an imported release, a file of `gpusetup matrix export`, or a folder of matrix
files. Without NEW: the matrix in use.

examples:
  gpusetup matrix diff shipped                     what imported releases changed
  gpusetup matrix diff 2026-11-20 2026-12-04
  gpusetup matrix diff matrix.json --exit-code     9 when something differs
"""

from __future__ import annotations

import collections
import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.cli.output import json_text, write_answer
from gpusetup.errors import BadInputError, Exit
from gpusetup.matrix import kept
from gpusetup.matrix.load import Matrix, matrix, releases_place, shipped_date

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from gpusetup.model.answers import Change, MatrixRelease

__all__ = ["add_arguments", "lines", "named", "run", "summary"]

_LONG = 100
"""A value of more characters is told by its beginning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("old", metavar="OLD", help="shipped, a day, a file or a folder")
    parser.add_argument("new", metavar="NEW", nargs="?", default="", help="default: the matrix in use")
    parser.add_argument("--component", metavar="NAME", help="only this component: driver, torch, vllm")
    parser.add_argument("--exit-code", action="store_true", help="exit with 9 when something differs")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--out", metavar="FILE", help="write the answer to FILE")


def run(arguments: argparse.Namespace) -> Exit:
    """Compare, and print what differs."""
    from gpusetup.model.documents import MatrixDiff

    before, after = named(arguments.old), named(arguments.new)
    found = tuple(of_component(kept.changes(before.files, after.files), arguments.component, after))
    if arguments.format == "json":
        write_answer(json_text(MatrixDiff(before=before.date, after=after.date, changes=found)), arguments.out)
    else:
        told = "\n".join(lines(found)) or "they say the same"
        write_answer(f"from {before.date} to {after.date}\n\n{told}", arguments.out)
    return Exit.PENDING if found and arguments.exit_code else Exit.DONE


def named(word: str) -> kept.MatrixRelease:
    """Return the matrix that a word means."""
    days = {"": matrix, "shipped": Matrix}
    if word in days:
        return kept.release_of(days[word]())
    found = [path for path in kept.all_kept(Path(releases_place(os.environ))) if path.name.startswith(word)]
    if found and word[:1].isdigit():
        return kept.release_of(Matrix(found[-1]))
    if word == shipped_date():
        return kept.release_of(Matrix())
    path = Path(word)
    if path.is_dir():
        return kept.release_of(Matrix(path))
    try:
        return kept.opened(path.read_bytes(), word)
    except OSError as error:
        days_kept = ", ".join(item.name[:10] for item in kept.all_kept(Path(releases_place(os.environ)))) or "none"
        raise BadInputError(
            "GS-223", f"no matrix is called {word!r}", path=word, note=error.strerror or "",
            hint=f"name shipped, a day that was taken in ({days_kept}), a file or a folder",
        ) from error  # fmt: skip


def of_component(found: Iterable[Change], name: str | None, release: MatrixRelease) -> Iterator[Change]:
    """Yield the changes of one component, or of all; a name that a release does not have is refused."""
    known = {file.removeprefix("frameworks/") for file in release.files}
    if name and name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        raise BadInputError(
            "GS-110", f"unknown component {name!r}", path="COMPONENT",
            hint=f"did you mean {' or '.join(near)}?" if near else f"one of: {', '.join(sorted(known))}",
        )  # fmt: skip
    return (item for item in found if not name or item.component in {name, f"frameworks/{name}"})


def summary(found: Iterable[Change]) -> Iterator[str]:
    """Yield a line for each component that something changed in."""
    counts = collections.Counter((item.component, item.what) for item in found)
    for component in sorted({component for component, _ in counts}):
        parts = [
            f"{counts[component, what]} {what}" for what in ("added", "changed", "gone") if counts[component, what]
        ]
        yield f"{component.removeprefix('frameworks/')}: {', '.join(parts)}"


def lines(found: Iterable[Change]) -> Iterator[str]:
    """Yield the changes as people read them, each component under its name."""
    last = ""
    for item in found:
        if item.component != last:
            yield ("\n" if last else "") + item.component.removeprefix("frameworks/")
            last = item.component
        yield f"  {item.what:<8} {item.record}"
        for name, (was, now) in item.fields.items():
            yield f"             {name}: {_short(was)} -> {_short(now)}".replace(" : ", " ")


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else "nothing" if value is None else str(value)
    return text if len(text) <= _LONG else text[:_LONG] + " …"
