"""What the lints share: the shipped files and the fixtures as plain documents, and how to walk their records.

A lint is a function from documents (component name → document) to a list of problems, one sentence each.
"""

import json
from collections.abc import Callable
from pathlib import Path

from gpusetup.matrix.load import NAMES
from tools.refresh.lints import Documents

DATA = Path(__file__).parents[2] / "gpusetup" / "matrix" / "data"
FIXTURES = Path(__file__).parent / "fixtures"


def shipped() -> Documents:
    return {name: json.loads((DATA / f"{name}.json").read_text()) for name in NAMES}


def fixture(lint: str, kind: str) -> Documents:
    return json.loads((FIXTURES / f"{lint}.{kind}.json").read_text())


def holds(lint: Callable[[Documents], list[str]], name: str) -> None:
    """The lint passes on the shipped data and on the good fixture, and finds what the bad one was written for."""
    assert lint(shipped()) == []
    assert lint(fixture(name, "good")) == []
    bad = fixture(name, "bad")
    expected = bad.pop("problems")
    found = lint(bad)
    assert len(found) == len(expected), found
    for words, problem in zip(expected, found, strict=True):
        assert words in problem
