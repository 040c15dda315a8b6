"""gpusetup's documents as frozen Structs; what goes wrong while gpusetup reads those of others, and what they hide."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import DecodeError, Meta, Struct, json

from gpusetup.errors import BadInputError, wrong_field

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

UNDECODED = (DecodeError, ValueError, RecursionError)
"""Everything that decoding JSON or TOML raises, also for other encodings and deeply nested documents."""
Kind = TypeVar("Kind")


def toml(text: str) -> dict[str, Any]:
    """Parse TOML."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    document: dict[str, Any] = tomllib.loads(text)
    return document


def kept_in(path: Path, kind: type[Kind]) -> Kind | None:
    """Return the record in a file of gpusetup's own; None if there is none, or a damaged one."""
    try:
        return json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNDECODED):
        return None


def stamp(moment: datetime | float | None = None) -> str:
    """Return a time, or now, as all documents have it; such texts compare as their times do."""
    seconds = moment if moment is None or isinstance(moment, (int, float)) else moment.timestamp()
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def visible(text: str, but: str = "") -> str:
    """Return a text with control and text-direction characters, except those in `but`, as JSON's escapes of them."""
    if text.isprintable():
        return text
    import unicodedata

    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(_escape(one) if one not in but and unicodedata.category(one) in hidden else one for one in text)


def _escape(letter: str) -> str:
    return "".join(f"\\u{unit}" for unit in letter.encode("utf-16-be", "surrogatepass").hex(" ", 2).split())


class Reading:
    """Explains why a file cannot be read or used; each failure has a reference and the beginning of its text."""

    def __init__(
        self, path: str | Path, unusable: tuple[str, str], unread: tuple[str, str] = ("", ""), *, hint: str = ""
    ) -> None:
        self.path, self.unread, self.unusable, self.hint = path, unread, unusable, hint

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Raise the explained failure in place of the error."""
        reference, text = self.unread
        if reference and isinstance(error, OSError):
            hint = "use sudo, or a user who may read it" if isinstance(error, PermissionError) else ""
            raise BadInputError(reference, f"{text}: {error.strerror}", path=str(self.path), hint=hint) from error
        if isinstance(error, UNDECODED):
            reference, text = self.unusable
            why, where = wrong_field(error)
            raise BadInputError(reference, f"{text}: {why}", path=f"{self.path}:{where}", hint=self.hint) from error


def must_be(document: object, path: str | Path, kind: tuple[str, str, str], hint: str = "") -> None:
    """Raise if a document is not of its kind: what that is, its schema, and the failure's reference."""
    what, schema, reference = kind
    if isinstance(document, dict) and document.get("schema") != schema:
        told = f"{path} is not {what}: its schema is {document.get('schema')!r}, not {schema!r}"
        raise BadInputError(reference, told, path=f"{path}:$.schema", hint=hint)


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema"):
    """A document that commands print and other programs read; its `schema` field holds the tag of its kind."""


class Success(Document, frozen=True, kw_only=True):
    """A document that a command prints only when it did what it was asked to do."""

    ok: Literal[True] = True


def whole(pattern: str, *, max_length: int | None = None) -> Meta:
    """Return the constraint that a whole text fits a pattern; Python's `$` alone also matches before a last newline."""
    return Meta(pattern=rf"^{pattern}$(?!\n)", max_length=max_length)
