"""Explain gpusetup's own error references (GS-324) from references.json, next to errors.py.

Each new reference needs a title, meaning and fix in that file; a test compares it with the sources.
"""

import difflib
import re
from functools import cache

import msgspec

from gpusetup.errors import references
from gpusetup.model.diagnosis import Reference

PLACE = "reference/errors"
"""The folder of these pages in the built documentation."""
REFERENCE = re.compile(r"\s*\[?\s*GS[-_ ]?(\d{1,4})\s*\]?\s*", re.IGNORECASE)
MENTIONED = re.compile(rb"\bGS-\d{3}\b")


@cache
def listed() -> dict[str, Reference]:
    """Return every reference by its number."""
    return msgspec.convert(references(), dict[str, Reference])


def reference_in(text: str) -> str:
    """Return the reference if the text is nothing else, else an empty string."""
    found = REFERENCE.fullmatch(text)
    return f"GS-{found[1]}" if found else ""


def mentioned(text: bytes) -> str:
    """Return the first known reference in a text, else an empty string."""
    names = (found[0].decode() for found in MENTIONED.finditer(text))
    return next((name for name in names if name in listed()), "")


def nearest(reference: str) -> tuple[str, ...]:
    """Return up to three references that are close to a mistyped one."""
    return tuple(difflib.get_close_matches(reference, listed(), n=3, cutoff=0.8))


def page_of(reference: str) -> str:
    """Return the path of a reference's page in the built documentation."""
    return f"{PLACE}/{reference}.md"
