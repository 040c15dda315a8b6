"""Explain gpusetup's own error references (GS-324) from references.json, next to errors.py.

Each new reference needs a title, meaning and fix in that file; a test compares it with the sources.
"""

import difflib
import re
from collections.abc import Iterator
from functools import cache

import msgspec

from gpusetup.errors import references
from gpusetup.model.diagnosis import Reference

PLACE = "reference/errors"
"""The folder of these pages in the built documentation."""
REFERENCE = re.compile(r"\s*\[?\s*GS[-_ ]?(\d{1,4})\s*\]?\s*", re.IGNORECASE)
MENTIONED = re.compile(rb"\bGS-\d{3}\b")


@cache
def _catalogue() -> dict[str, Reference]:
    return msgspec.convert(references(), dict[str, Reference])


def reference_in(text: str) -> str:
    """Return the reference if the text is nothing else, else an empty string."""
    found = REFERENCE.fullmatch(text)
    return f"GS-{found[1]}" if found else ""


def mentioned(text: bytes) -> str:
    """Return the first known reference in a text, else an empty string."""
    names = (found[0].decode() for found in MENTIONED.finditer(text))
    return next((name for name in names if name in _catalogue()), "")


def explained(reference: str) -> Reference | None:
    """Return the entry of a reference, or None if it does not exist."""
    return _catalogue().get(reference)


def nearest(reference: str) -> tuple[str, ...]:
    """Return up to three references that are close to a mistyped one."""
    return tuple(difflib.get_close_matches(reference, _catalogue(), n=3, cutoff=0.8))


def page_of(reference: str) -> str:
    """Return the path of a reference's page in the built documentation."""
    return f"{PLACE}/{reference}.md"


def pages() -> dict[str, str]:
    """Return every page by its file name, including the list of all pages."""
    found = {f"{reference}.md": "\n".join(_page(reference, entry)) for reference, entry in _catalogue().items()}
    lines = ["# gpusetup's own messages", "", "`gpusetup doctor GS-324` prints a page.", ""]
    lines += [f"- [{reference}]({reference}.md): {entry.title}" for reference, entry in _catalogue().items()]
    found["README.md"] = "\n".join(lines) + "\n"
    return found


def _page(reference: str, entry: Reference) -> Iterator[str]:
    yield f"# {reference}: {entry.title}"
    if entry.meaning:
        yield from ("", entry.meaning)
    yield from ("", f"What helps: {entry.fix}", "")
