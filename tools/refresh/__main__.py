"""Add newer versions to the matrix from publishers' machine-readable sources: `python -m tools.refresh [SOURCE …]`.

Prints the new records and the answers that they change; `--write` changes the files of gpusetup/matrix/data. New rows
are candidates: each names its source and that only a program has read it. They must pass the lints and the laws of
answers. People add what no source has, such as the GPUs of a new minor release. A failed source does not stop the
others.
Exit: 0 nothing is new, or it was written; 3 no such source, or a row that cannot be; 6 a source could not be read;
9 something is new and was not written.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.matrix import releases
from gpusetup.matrix.load import Matrix, canonical, struct_of
from gpusetup.model.answers import MatrixRelease
from tools.refresh.asking import Contradiction
from tools.refresh.judging import changed, new_breaches
from tools.refresh.sources import PLACES, SOURCES, gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.model.answers import Change
    from tools.refresh.gathering import Gathering

DATA = Path(__file__).parents[2] / "gpusetup" / "matrix" / "data"
DONE, BAD_INPUT, UNREACHABLE, PENDING = 0, 3, 6, 9


def main(argv: list[str] | None = None, data: Path = DATA) -> int:
    """Read the sources, check the new rows and print them; with --write change the files."""
    parser = argparse.ArgumentParser(prog="python -m tools.refresh", description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help=f"{', '.join(SOURCES)}; default: all")
    parser.add_argument(
        "--from", dest="places", action="append", default=[], metavar="PLACE=FILE|FOLDER|URL",
        help=f"read PLACE elsewhere: {', '.join(PLACES)}",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="change the files")
    arguments = parser.parse_args(argv)
    places = dict(text.partition("=")[::2] for text in arguments.places)
    for name, known in ((name, names) for names in (SOURCES, PLACES) for name in _unknown(names, arguments, places)):
        print(f"error: {name!r} is unknown; known: {', '.join(known)}", file=sys.stderr)
        return BAD_INPUT
    before = releases.release_of(Matrix(data))
    gathered, failed = gather(
        {name: json.loads(text) for name, text in before.files.items()}, dt.datetime.now(tz=dt.timezone.utc).date(),
        only=arguments.sources or list(SOURCES), elsewhere=places,
        tell=lambda what: print(f"# reading {what}", file=sys.stderr),
    )  # fmt: skip
    for text in (*(f"{source} brought nothing: {fault}" for source, fault in failed), *gathered.told):
        print(f"! {text}", file=sys.stderr)
    code = max((BAD_INPUT if isinstance(fault, Contradiction) else UNREACHABLE for _, fault in failed), default=DONE)
    files = _files(before.files, gathered)
    found = tuple(releases.changes(before.files, files))
    if not found:
        print("nothing is new")
        return code
    with tempfile.TemporaryDirectory() as folder:
        after = releases.written(_release(files), Path(folder))
        if broken := new_breaches(Matrix(data), after):
            print("error: with the new rows answers would contradict each other; nothing was written",
                  *broken[:5], sep="\n  ", file=sys.stderr)  # fmt: skip
            return BAD_INPUT
        print("\n".join(_report(found, list(changed(Matrix(data), after)))))
    if arguments.write:
        for name, text in files.items():
            if text != before.files[name]:
                (data / f"{name}.json").write_text(text, encoding="utf-8")
        return code
    return code or PENDING


def _unknown(names: Mapping[str, Any], arguments: argparse.Namespace, places: Mapping[str, str]) -> list[str]:
    return [name for name in (arguments.sources if names is SOURCES else places) if name not in names]


def _files(before: Mapping[str, str], gathered: Gathering) -> dict[str, str]:
    """Return the matrix files with the new rows."""
    files = {
        name: text if gathered.documents[name] == json.loads(text) else _printed(name, gathered.documents[name])
        for name, text in before.items()
    }
    if files != before:
        # The matrix is of the day of its drivers; one with newer rows is of today, whichever they are.
        files["driver"] = _printed("driver", gathered.documents["driver"] | {"date": str(gathered.today)})
    return files


def _printed(name: str, document: dict[str, Any]) -> str:
    """Return a file in canonical form, with fields in the order of its type: a diff shows only what is new."""
    return canonical(msgspec.convert(document, struct_of(name))).decode()


def _release(files: dict[str, str]) -> MatrixRelease:
    return MatrixRelease(date=json.loads(files["driver"])["date"], sha256=releases.digest(files), files=files)


def _report(found: tuple[Change, ...], answers: list[str]) -> list[str]:
    """Return the new rows and the changed answers, as lines."""
    lines = [f"{item.what} {item.component}: {item.record.partition(': ')[2]}" for item in found]
    return [*lines, *(["", "answers that change:"] if answers else []), *(f"  {text}" for text in answers)]


if __name__ == "__main__":
    raise SystemExit(main())
