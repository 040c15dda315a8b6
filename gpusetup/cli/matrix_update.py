"""Take newer versions in from what vendors and indexes publish for programs, without a new gpusetup.

New rows are candidates: each says where it is from and that a program alone has read it, and an answer that takes one
says so. They are checked as shipped data is; answers that change are shown. What no document tells, such as the GPUs of
a new minor release, is not made up: it waits for a newer gpusetup. A source that fails costs only itself.

examples:
  gpusetup matrix update --check             9 when there is more than in the matrix; takes nothing in
  gpusetup matrix update
  gpusetup matrix update drivers cuda        these sources only
  gpusetup matrix update --from releases.json     a copy of NVIDIA's list, where this machine reaches no network
  gpusetup matrix update cuda --from cuda=/srv/copies/cuda/redist --from pairing=/srv/copies/runfile
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
    from collections.abc import Collection

    from gpusetup.errors import GpuSetupError
    from gpusetup.matrix.kept import MatrixRelease
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.matrix_release import Change
    from gpusetup.refresh.gathering import Gathering

__all__ = ["add_arguments", "run"]

_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE",
        help="drivers, cuda, cudnn, repositories, wheels, torch, packages; default: all",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="places", action="append", default=[], metavar="[PLACE=]FILE|FOLDER|URL",
        help="read PLACE elsewhere: drivers, cuda, pairing, cudnn, repositories, lanes, index; "
        "without PLACE, NVIDIA's list of drivers and nothing else",
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="say what is new and take nothing in; 9 when there is")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--out", metavar="FILE", help="write the answer to FILE instead of standard output")


def run(arguments: argparse.Namespace) -> Exit:
    """Ask the sources, judge what they say, show what is new, and put it in force."""
    from gpusetup.cli.matrix_diff import summary
    from gpusetup.errors import gravest
    from gpusetup.matrix import differences, kept
    from gpusetup.matrix.load import matrix, releases_place
    from gpusetup.model.documents import MatrixUpdated, SourceFailed

    if os.environ.get("GPUSETUP_MATRIX"):
        raise BadInputError("GS-223", "GPUSETUP_MATRIX names another matrix, which would stay in force",
                            hint="unset GPUSETUP_MATRIX")  # fmt: skip
    only, elsewhere = _asked(arguments)
    now, today = matrix(), dt.datetime.now(tz=dt.timezone.utc).date()
    before = kept.release_of(now)
    gathered, failed = _gathered(before, today, only, elsewhere)
    release = _release(before, gathered)
    found = tuple(differences.changes(before.files, release.files))
    answers = _judged(now, release) if found else ()
    place = ""
    if found and not arguments.check:
        kept.check_order(release, now.date, today, older=False)
        place = str(kept.put_in_force(release, Path(releases_place(os.environ))))
    for text in (*(f"{source} brought nothing: {error.message}" for source, error in failed), *gathered.told):
        warn(text)
    if arguments.format == "json":
        document = MatrixUpdated(
            ok=not failed, date=release.date, before=now.date, place=place, changes=found, answers=answers,
            left_out=tuple(gathered.told),
            failed=tuple(
                SourceFailed(source=name, reference=error.reference, message=error.message) for name, error in failed
            ),
        )  # fmt: skip
        write_answer(json_text(document), arguments.out)
    else:
        write_answer("\n".join(_told(list(summary(found)), found, answers)), arguments.out)
        if place:
            say(f"in force from now on; before: the matrix of {now.date}")
    return gravest(
        [Exit.PENDING if found and arguments.check else Exit.DONE, *(error.exit for _source, error in failed)]
    )


def _told(lines: Collection[str], found: tuple[Change, ...], answers: tuple[str, ...]) -> list[str]:
    if not found:
        return ["nothing is new"]
    added = [f"  {item.component}: {item.record.partition(': ')[2]}" for item in found if item.what == "added"]
    told = [*lines, *_some(added)]
    if answers:
        told += ["", "answers that change:", *(f"  {text}" for text in _some(list(answers)))]
    return told


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"  … and {more} more: --format json"]


def _asked(arguments: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Return the sources to ask, and the places that are read instead of the publishers' own."""
    from gpusetup.refresh.sources import PLACES, SOURCES

    unknown = [name for name in arguments.sources if name not in SOURCES]
    if unknown:
        raise BadInputError("GS-225", f"{unknown[0]!r} is no source of newer versions", path="SOURCE",
                            hint=f"one of: {', '.join(SOURCES)}")  # fmt: skip
    elsewhere, alone = {}, False
    for text in arguments.places:
        place, is_named, address = text.partition("=")
        named = bool(is_named) and place in PLACES
        elsewhere[place if named else "drivers"] = address if named else text
        alone = alone or not named
    return arguments.sources or (["drivers"] if alone else list(SOURCES)), elsewhere


def _gathered(
    before: MatrixRelease, today: dt.date, only: list[str], elsewhere: dict[str, str]
) -> tuple[Gathering, list[tuple[str, GpuSetupError]]]:
    """Ask the sources; when none of them brought anything, that is the answer."""
    import msgspec

    from gpusetup.refresh.sources import gather

    documents = {name: msgspec.json.decode(text) for name, text in before.files.items()}
    gathered, failed = gather(
        documents, today, only=only, elsewhere=elsewhere, tell=lambda what: say(f"reading {what}")
    )
    if len(failed) == len(only):
        raise failed[0][1]
    return gathered, failed


def _release(before: MatrixRelease, gathered: Gathering) -> MatrixRelease:
    """Return the matrix in force with what was gathered in it."""
    import msgspec

    from gpusetup.matrix import kept
    from gpusetup.matrix.load import canonical

    files = dict(before.files)
    for name, text in before.files.items():
        if gathered.documents[name] != msgspec.json.decode(text):
            files[name] = canonical(gathered.documents[name]).decode()
    if files == before.files:
        return before
    # The matrix is of the day of its drivers; one with newer rows is of today, whichever they are.
    driver = gathered.documents["driver"] | {"date": str(gathered.today)}
    files["driver"] = canonical(driver).decode()
    return kept.MatrixRelease(date=driver["date"], sha256=kept.digest(files), files=files)


def _judged(now: Matrix, release: MatrixRelease) -> tuple[str, ...]:
    """Return the answers that change; refuse rows that break a law of answers."""
    import tempfile

    from gpusetup.matrix import kept
    from gpusetup.refresh.judging import changed, new_breaches

    with tempfile.TemporaryDirectory() as folder:
        after = kept.written(release, Path(folder))
        if broken := new_breaches(now, after):
            raise BadInputError(
                "GS-226", f"with the new rows answers would contradict each other: {broken[0]}",
                context="\n".join(broken[:5]), note="nothing was changed",
                hint="take in single sources, to see which it is: gpusetup matrix update drivers",
            )  # fmt: skip
        return tuple(changed(now, after))
