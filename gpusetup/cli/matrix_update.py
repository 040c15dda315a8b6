"""Take new drivers in from NVIDIA's own list, without a new gpusetup: shown first, checked, and in force from then on.

The list tells versions and days of the branches that are known. Everything else of the matrix stays as it was; so does
all of it when the list is damaged, or nothing in it is new.

examples:
  gpusetup matrix update --check             9 when the list has more than the matrix; takes nothing in
  gpusetup matrix update
  gpusetup matrix update --from releases.json     a copy, where this machine reaches no network
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli.output import json_text, say, warn, write_answer
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.matrix.kept import MatrixRelease
    from gpusetup.matrix.load import Matrix

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--from", dest="source", metavar="FILE|URL", help="default: NVIDIA's list of drivers")
    parser.add_argument("--check", action="store_true", help="say what is new and take nothing in; 9 when there is")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--out", metavar="FILE", help="write the answer to FILE instead of standard output")


def run(arguments: argparse.Namespace) -> Exit:
    """Read the list, say what is new, and put it in force."""
    from gpusetup.cli.matrix_diff import summary
    from gpusetup.cli.matrix_import import content_of
    from gpusetup.matrix import candidates, differences, kept
    from gpusetup.matrix.load import matrix, releases_place
    from gpusetup.model.documents import MatrixUpdated

    if os.environ.get("GPUSETUP_MATRIX"):
        raise BadInputError("GS-223", "GPUSETUP_MATRIX names another matrix, which would stay in force",
                            hint="unset GPUSETUP_MATRIX")  # fmt: skip
    now, today = matrix(), dt.datetime.now(tz=dt.timezone.utc).date()
    release, told = _release(content_of(arguments.source or candidates.RELEASES_JSON), now, today)
    found = tuple(differences.changes(differences.texts_of(now), release.files))
    answers = _answers(now, release) if found else ()
    place = ""
    if found and not arguments.check:
        kept.check_order(release, now.date, today, older=False)
        place = str(kept.put_in_force(release, Path(releases_place(os.environ))))
    for text in told:
        warn(text)
    if arguments.format == "json":
        document = MatrixUpdated(
            date=release.date, before=now.date, place=place, changes=found, answers=answers, left_out=tuple(told)
        )
        write_answer(json_text(document), arguments.out)
    else:
        added = [item.record.removeprefix("versions: ") for item in found if item.what == "added"]
        lines = [*summary(found), *(f"  {name}" for name in added)]
        lines += ["", "answers that change, for people who ask for nothing in particular:", *answers] if answers else []
        write_answer("\n".join(lines) if found else "nothing is new", arguments.out)
        if place:
            say(f"in force from now on; before: the matrix of {now.date}")
    return Exit.PENDING if found and arguments.check else Exit.DONE


def _release(content: bytes, now: Matrix, today: dt.date) -> tuple[MatrixRelease, list[str]]:
    """Return the matrix in force with the list's new drivers in it, and what was left out."""
    import msgspec

    from gpusetup.matrix import candidates, kept
    from gpusetup.matrix.load import canonical

    before = kept.release_of(now)
    known = msgspec.json.decode(before.files["driver"])
    driver, told = candidates.with_drivers(content, known, today)
    if driver is known:
        return before, told
    files = {**before.files, "driver": canonical(driver).decode()}
    return kept.MatrixRelease(date=driver["date"], sha256=kept.digest(files), files=files), told


def _answers(now: Matrix, release: MatrixRelease) -> tuple[str, ...]:
    import tempfile

    from gpusetup.matrix import kept
    from gpusetup.resolve.changed import changed_answers

    with tempfile.TemporaryDirectory() as folder:
        return tuple(changed_answers(now, kept.written(release, Path(folder))))
