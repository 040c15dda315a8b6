"""A folder takes its place as a whole: it is made beside the one in use, and the two are swapped in one step."""

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
    """Give an empty folder, which is in place at the end; who reads, or is killed, has the old one or the new one."""
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
    """Have a folder take the place of another, which goes."""
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
    """Have a file at another place as well: the same one, where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _swapped(one: Path, other: Path) -> bool:
    """Swap two folders in one step; tell whether the kernel and the file system can."""
    try:
        swap = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0)
