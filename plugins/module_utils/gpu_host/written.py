"""Files that gpusetup wrote and somebody else edited since: whether anything of ours is left, and a copy of them."""

import os
import re
from typing import Optional

from . import files

_BLANKS = re.compile(rb"[\s,]+")
_TELLING = re.compile(rb"\w.*\w.*\w", re.DOTALL)


def has_ours(there: bytes, ours: Optional[bytes], original: bytes) -> bool:
    """Return whether a file still contains a line that we added; True if what we wrote is unknown.

    Whitespace and commas are ignored, because programs that write settings reformat them.
    """
    if ours is None:
        return True
    text, before = _bare(there), _bare(original)
    added = {_bare(line) for line in ours.splitlines()}
    return any(line in text for line in added if _TELLING.search(line) and line not in before)


def _bare(text: bytes) -> bytes:
    return _BLANKS.sub(b"", text)


def _place_of(path: str, content: bytes) -> str:
    """Return where to copy an edited file: never into a folder of drop-ins, where some programs read every file."""
    folder, name = os.path.split(path)
    if folder.endswith(".d"):
        folder = os.path.dirname(folder)
    place, number = os.path.join(folder, name + ".gpusetup-saved"), 1
    while os.path.lexists(place) and files.read_bytes(place) != content:
        number += 1
        place = os.path.join(folder, f"{name}.gpusetup-saved-{number}")
    return place


def put_aside(path: str, content: bytes) -> str:
    """Copy an edited file, with its owner and permissions, next to itself; return where."""
    place = _place_of(path, content)
    files.copy(path, place, content)
    return place
