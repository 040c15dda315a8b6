"""What the lints share: the shipped files and the fixtures as plain documents, and how to walk their records.

A lint is a function from documents (component name → document) to a list of problems, one sentence each. Its test file
holds it against the shipped data, against a good fixture and against a bad one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.matrix.load import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parents[2] / "gpusetup" / "matrix" / "data"
FIXTURES = Path(__file__).parent / "fixtures"

Documents = dict[str, dict[str, Any]]


def shipped() -> Documents:
    return {name: json.loads((DATA / f"{name}.json").read_text()) for name in NAMES}


def fixture(lint: str, kind: str) -> Documents:
    return json.loads((FIXTURES / f"{lint}.{kind}.json").read_text())


def holds(lint: Callable[[Documents], list[str]], name: str) -> None:
    """The lint passes on the good fixture and finds exactly the problems that the bad one was written for."""
    assert lint(fixture(name, "good")) == []
    bad = fixture(name, "bad")
    expected = bad.pop("problems")
    found = lint(bad)
    assert len(found) == len(expected), found
    for words, problem in zip(expected, found, strict=True):
        assert words in problem


def records(documents: Documents) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every record and rule: component, path, record."""
    for name, document in documents.items():
        for field, value in document.items():
            if field in ("sources", "schema", "date"):
                continue
            if isinstance(value, dict) and "confidence" in value:
                yield name, f"{name}.{field}", value
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, dict):
                        yield name, f"{name}.{field}[{index}]", item


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
