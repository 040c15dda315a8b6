"""The fields of every matrix record and of every matrix file.

`confidence` is the quality of a record's source: `vendor` (the publisher's own document or package), `observed`
(measured, or from a third party's copy of the vendor's data), `inferred` (derived, or from secondary sources only).
`sources` are keys into the file's `sources`. Versions are text as published; compute capabilities are text like "9.0".
"""

# No `from __future__ import annotations` here: msgspec would compile every annotation again at each start.
from typing import Annotated, Literal

from msgspec import Struct

from gpusetup.model import whole

Confidence = Literal["vendor", "observed", "inferred"]
Arch = Literal["x86_64", "aarch64"]
Day = Annotated[str, whole(r"([0-9]{4}-[0-9]{2}(-[0-9]{2})?|unknown)")]
Version = Annotated[str, whole(r"[0-9]+(\.[0-9]+)*")]
PackageVersion = Annotated[str, whole(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?")]
Capability = Annotated[str, whole(r"[0-9]+\.[0-9]")]


CANDIDATE = "read by a program on"
"""The beginning of the note of a record that `python -m tools.refresh` read and no person has checked."""


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A document to look up."""

    title: str
    publisher: str = ""
    url: str = ""
    seen: str = ""
    note: str = ""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of every record."""

    sources: tuple[str, ...]
    confidence: Confidence
    note: str = ""

    @property
    def candidate(self) -> bool:
        """Whether no person has checked it yet."""
        return self.note.startswith(CANDIDATE)


class Rule(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named rule that explanations, documentation and lints cite; `value` is its number or list, if it has one."""

    id: Annotated[str, whole(r"[a-z0-9]+(-[a-z0-9]+)*")]
    text: str
    value: str | int | tuple[str, ...] | None = None


class MatrixFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of every file."""

    schema: str
    date: Annotated[str, whole(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")]
    sources: dict[str, Source]
    rules: tuple[Rule, ...] = ()
