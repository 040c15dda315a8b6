"""Outputs and programs that tests stand in with, each in a file of its own: `tests/fixtures/stored/`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures/stored"


def stored(name: str) -> str:
    """Return a text as it was captured."""
    return (FOLDER / name).read_text(encoding="utf-8")


def stored_rows(name: str) -> Any:
    """Return a table of cases."""
    return json.loads(stored(name))


def spoiled(value: Any, depth: int = 9) -> Iterator[Any]:
    """Yield a document with each of its parts left out or replaced by what does not belong there."""
    yield from (None, "", "\0", [], {}, [None], 0, 1e400)
    for key in (
        (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()) if depth else ()
    ):
        for part in spoiled(value[key], depth - 1):
            yield {**value, key: part} if isinstance(value, dict) else [*value[:key], part, *value[key + 1 :]]
        if isinstance(value, dict):
            yield {name: part for name, part in value.items() if name != key}
