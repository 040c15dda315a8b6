"""A repository takes its place as a whole: it is made beside the one that is in use."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["anew"]


@contextmanager
def anew(place: Path) -> Iterator[Path]:
    """Give an empty folder, which is in place at the end; whoever reads sees the old one or the new one."""
    new, old = place.with_name(f".{place.name}.new"), place.with_name(f".{place.name}.old")
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    new.mkdir(parents=True)
    yield new
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
