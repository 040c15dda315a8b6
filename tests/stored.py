"""Outputs and programs that tests stand in with, each in a file of its own: `tests/fixtures/stored/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures/stored"


def stored(name: str) -> str:
    """Return a text as it was captured."""
    return (FOLDER / name).read_text(encoding="utf-8")


def stored_rows(name: str) -> Any:
    """Return a table of cases."""
    return json.loads(stored(name))
