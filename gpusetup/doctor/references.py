"""What gpusetup's own error references (GS-324) say: read from the list that tools/references.py writes."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpusetup.doctor.catalogue import read_table
from gpusetup.model.diagnosis import Said

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MENTIONED", "PLACE", "REFERENCE", "mentioned", "nearest", "page_of", "pages", "reference_in", "told"]

PLACE = "reference/errors"
"""Where the built documentation has the pages."""
REFERENCE = re.compile(r"\s*\[?\s*GS[-_ ]?(\d{1,4})\s*\]?\s*", re.IGNORECASE)
MENTIONED = re.compile(rb"\bGS-\d{3}\b")


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    references: dict[str, tuple[Said, ...]]


@cache
def _list() -> dict[str, tuple[Said, ...]]:
    return msgspec.json.decode(read_table("references.json"), type=_File).references


def reference_in(text: str) -> str:
    """Return the reference that a text is, and nothing else; empty for any other text."""
    found = REFERENCE.fullmatch(text)
    return f"GS-{found[1]}" if found else ""


def mentioned(text: bytes) -> str:
    """Return the first reference that stands in a text; empty without one."""
    names = (found[0].decode() for found in MENTIONED.finditer(text))
    return next((name for name in names if name in _list()), "")


def told(reference: str) -> tuple[Said, ...]:
    """Return what is said with a reference; nothing for one that does not exist."""
    return _list().get(reference, ())


def nearest(reference: str) -> tuple[str, ...]:
    """Return the references that somebody may have meant: a digit that differs, is missing or is one too many."""
    return tuple(difflib.get_close_matches(reference, _list(), n=3, cutoff=0.8))


def page_of(reference: str) -> str:
    """Return the page of a reference in the built documentation."""
    return f"{PLACE}/{reference}.md"


def pages() -> dict[str, str]:
    """Return every page by its file name, the list of all of them included."""
    found = {f"{reference}.md": "\n".join(_page(reference, said)) for reference, said in _list().items()}
    lines = [
        "# gpusetup's own messages",
        "",
        "`gpusetup doctor GS-324` prints a page; … differs from case to case.",
        "",
    ]
    lines += [f"- [{reference}]({reference}.md): {said[0].message}" for reference, said in _list().items()]
    found["README.md"] = "\n".join(lines) + "\n"
    return found


def _page(reference: str, said: tuple[Said, ...]) -> Iterator[str]:
    yield f"# {reference}"
    yield ""
    yield "A message of gpusetup itself; … differs from case to case."
    for one in said:
        yield from ("", f"> {one.message}")
        if one.hint:
            yield from ("", f"What helps: {one.hint}")
    yield ""
