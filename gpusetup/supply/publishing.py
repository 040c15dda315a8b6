"""Replace a folder as a whole: the new one is made next to the old one, and the two are swapped in one step."""

from __future__ import annotations

import ctypes
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HERE, _SWAP = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2(2)."""


@contextmanager
def replaced(place: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `place` at the end; until then `place` is the old one, even after a kill."""
    new, old = place.with_name(f".{place.name}.new"), place.with_name(f".{place.name}.old")
    if old.is_dir() and not place.exists():
        old.rename(place)  # an earlier run was killed between two renames
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        put_in_place(new, place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def put_in_place(new: Path, place: Path) -> None:
    """Move a folder to `place` and delete the folder that was there."""
    old = place.with_name(f".{place.name}.old")
    if not place.exists():
        new.rename(place)
    elif _swapped(new, place):
        shutil.rmtree(new, ignore_errors=True)
    else:
        place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)


def laid(source: Path, target: Path) -> None:
    """Hard-link a file to another place, or copy it where the file system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _swapped(one: Path, other: Path) -> bool:
    """Swap two folders in one step; return False if kernel or file system cannot."""
    try:
        swap = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0)
