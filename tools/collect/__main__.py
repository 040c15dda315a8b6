"""Refresh the matrix's rows of Python packages: `python -m tools.collect [NAME …] [--write]`.

Asks the package index that pip asks, compares with gpusetup/matrix/data/frameworks, and prints what differs. `--write`
changes the files; without it nothing is changed. `--rows FOLDER` takes YAML files of gathered rows instead.
`torch` holds torch.json against torch, torchvision and torchaudio, and only tells.
Exit: 0 nothing differs, or it was written; 3 no such package; 6 the index, or a release on it, could not be read;
9 something differs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import InvalidName, canonicalize_name

from gpusetup.matrix.load import canonical
from gpusetup.model.packages import PackageFile
from tools.collect.gathered import gathered
from tools.refresh.asking import Fault, plain_url
from tools.refresh.index import Index, configured_index
from tools.refresh.known_packages import PACKAGES
from tools.refresh.packages import Findings, differences, refreshed
from tools.refresh.torch import COMPANIONS, torch_differences

DATA = Path(__file__).parents[2] / "gpusetup" / "matrix" / "data" / "frameworks"
DONE, BAD_INPUT, UNREACHABLE, PENDING = 0, 3, 6, 9
TORCH = "torch"


def main(argv: list[str] | None = None, data: Path = DATA) -> int:
    """Compare with the index and print the differences; with --write change the files."""
    parser = argparse.ArgumentParser(prog="python -m tools.collect", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these packages; without any: all")
    parser.add_argument("--write", action="store_true", help="change the files")
    parser.add_argument("--again", action="store_true", help="measure again what is inside wheels that have a row")
    parser.add_argument("--index", metavar="URL", help="another index than the one that pip asks")
    parser.add_argument("--rows", type=Path, metavar="FOLDER", help="YAML files of gathered rows, instead of an index")
    arguments = parser.parse_args(argv)
    names, wrong = _names(arguments.names)
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    if wrong:
        return BAD_INPUT
    try:
        index = None if arguments.rows else Index(arguments.index or configured_index())
    except Fault as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    if index is not None:
        print(f"# {plain_url(index.url)}")
    relevant = {canonicalize_name(name) for name in _named_anywhere(data)}
    found = DONE
    for name in names:
        path = (data.parent if name == TORCH else data) / f"{name}.json"
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"sources": {}, "releases": []}
        try:
            if name == TORCH:
                findings = Findings(stored)
                findings.lines, findings.faults = torch_differences(stored, index) if index is not None else ([], [])
            elif index is None:
                findings = _from_rows(name, stored, arguments.rows)
            else:
                findings = refreshed(name, stored, index, relevant, again=arguments.again)
            text = b"" if name == TORCH else canonical(msgspec.convert(findings.document, PackageFile))
        except (Fault, msgspec.ValidationError) as error:
            print(f"{name}: {error}; its file stays as it is", file=sys.stderr)
            found = UNREACHABLE
            continue
        _tell(name, findings)
        if arguments.write and text:
            _write(path, text)
        if findings.faults:
            found = UNREACHABLE
        elif findings.lines and not (arguments.write and text) and found == DONE:
            found = PENDING
    return found


def _names(asked: list[str]) -> tuple[list[str], list[str]]:
    """Return the packages by name, and an error for each unknown one."""
    names, wrong = list[str](), list[str]()
    for word in asked:
        try:
            name = canonicalize_name(word, validate=True)
        except InvalidName:
            wrong.append(f"{word!r} is no name of a package")
            continue
        if name in (TORCH, *COMPANIONS):
            names.append(TORCH)
        elif name in PACKAGES:
            names.append(name)
        else:
            near = difflib.get_close_matches(name, (TORCH, *PACKAGES), 3)
            wrong.append(f"{name} has no rows here" + (f"; near: {', '.join(near)}" if near else ""))
    return list(dict.fromkeys(names)) or [TORCH, *PACKAGES], wrong


def _named_anywhere(data: Path) -> set[str]:
    """Return every package that has rows or that a row requires."""
    found = set(PACKAGES)
    for path in sorted(data.glob("*.json")):
        for item in json.loads(path.read_text(encoding="utf-8"))["releases"]:
            found |= set(item.get("requires", ()))
    return found


def _from_rows(name: str, stored: dict[str, Any], folder: Path) -> Findings:
    findings = Findings(gathered(name, folder))
    findings.lines = differences(stored["releases"], findings.document["releases"])
    return findings


def _tell(name: str, findings: Findings) -> None:
    rows = len(findings.document["releases"])
    print(f"{name}: {rows} rows" + ("" if findings.lines else ", nothing differs"))
    for line in findings.lines:
        print(f"  {line}")
    for text in findings.faults:
        print(f"  ! {text}", file=sys.stderr)


def _write(path: Path, text: bytes) -> None:
    """Write a file atomically."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
