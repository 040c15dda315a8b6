"""A file that gpusetup wrote and somebody else changed since: is anything of ours still in it, and where is it kept."""

import os
import re
from typing import Optional

from . import files

_BLANKS = re.compile(rb"[\s,]+")
_TELLING = re.compile(rb"\w.*\w.*\w", re.DOTALL)


def has_ours(there: bytes, ours: Optional[bytes], original: bytes) -> bool:
    """Tell whether something of what we wrote is still in a file; yes when nobody knows what we wrote.

    Blanks and commas do not count: programs that write settings set them as they like.
    """
    if ours is None:
        return True
    text, before = _bare(there), _bare(original)
    added = {_bare(line) for line in ours.splitlines()}
    return any(line in text for line in added if _TELLING.search(line) and line not in before)


def _bare(text: bytes) -> bytes:
    return _BLANKS.sub(b"", text)


def _place_of(path: str, content: bytes) -> str:
    """Return where a changed file is kept: never in a folder of drop-ins, all of which some programs read."""
    folder, name = os.path.split(path)
    if folder.endswith(".d"):
        folder = os.path.dirname(folder)
    place, number = os.path.join(folder, name + ".gpusetup-saved"), 1
    while os.path.lexists(place) and files.read_bytes(place) != content:
        number += 1
        place = os.path.join(folder, f"{name}.gpusetup-saved-{number}")
    return place


def put_aside(path: str, content: bytes) -> str:
    """Keep a changed file beside, as it is, for its owner alone to read; return where."""
    place = _place_of(path, content)
    files.copy(path, place, content)
    return place
