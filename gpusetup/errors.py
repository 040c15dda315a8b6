"""Errors and exit codes: every failure that users see has a reference, a cause, a fix and an exit code."""

from enum import IntEnum
from functools import cache
from json import JSONDecodeError
from os.path import dirname
from typing import Any


class Exit(IntEnum):
    """Exit codes that scripts rely on."""

    DONE = 0
    BUG = 1
    COMMAND_LINE = 2
    BAD_INPUT = 3
    NO_STACK = 4
    REFUSED = 5
    UNREACHABLE = 6
    FAILED = 7
    VERIFY_FAILED = 8
    PENDING = 9
    INTERRUPTED = 130

    @classmethod
    def _missing_(cls, value: object) -> "Exit":  # noqa: ARG003 - enum's
        """Treat a code that only another release knows, in a document that it wrote, as a failure."""
        return cls.FAILED


_GRAVITY = (
    Exit.INTERRUPTED,
    Exit.BUG,
    Exit.FAILED,
    Exit.VERIFY_FAILED,
    Exit.UNREACHABLE,
    Exit.REFUSED,
    Exit.NO_STACK,
    Exit.BAD_INPUT,
    Exit.COMMAND_LINE,
    Exit.PENDING,
    Exit.DONE,
)


def gravest(codes: list[Exit]) -> Exit:
    """Return the gravest of several hosts' exit codes."""
    return min(codes, key=_GRAVITY.index, default=Exit.DONE)


def shipped(name: str) -> bytes:
    """Return a data file of this package; pkgutil, which does the same, costs a lookup more than the file."""
    with open(f"{dirname(__file__)}/{name}", "rb") as file:  # noqa: PTH120, PTH123
        return file.read()


@cache
def references() -> dict[str, dict[str, str]]:
    """Return each error reference's title, meaning and fix."""
    import json

    try:
        text = shipped("references.json")
    except OSError:  # a broken installation must still report its error
        return {}
    found: dict[str, dict[str, str]] = json.loads(text)["references"]
    return found


class GpuSetupError(Exception):
    """An explained failure: what happened (message), where (context), why (note), what to do (hint), more (link).

    The hint defaults to the fix of its reference.
    """

    exit: Exit = Exit.BUG

    def __init__(
        self,
        reference: str,
        message: str,
        *,
        context: str = "",
        note: str = "",
        hint: str = "",
        link: str = "",
        path: str = "",
    ) -> None:
        super().__init__(message)
        self.reference = reference
        self.message = message
        self.context = context
        self.note = note
        self.hint = hint or references().get(reference, {}).get("fix", "")
        self.link = link
        self.path = path

    def to_document(self) -> dict[str, Any]:
        """Return the error as the JSON document that every command prints with `--format json`."""
        slots = ("reference", "message", "path", "context", "note", "hint", "link")
        error = {slot: getattr(self, slot) for slot in slots if getattr(self, slot) or slot in ("path", "hint")}
        # A file name need not be UTF-8; a JSON document has to be.
        error = {slot: text.encode(errors="backslashreplace").decode() for slot, text in error.items()}
        return {"schema": "gpusetup/error/1", "ok": False, "error": error}


class BadInputError(GpuSetupError):
    """Matrix, lock, request, facts or inventory cannot be used; `path` names the field."""

    exit = Exit.BAD_INPUT


class NoStackError(GpuSetupError):
    """No stack fits the request; carries the minimal conflict as a document."""

    exit = Exit.NO_STACK

    def __init__(self, reference: str, message: str, *, document: dict[str, Any] | None = None, **slots: str) -> None:
        super().__init__(reference, message, **slots)
        self.document = document

    def to_document(self) -> dict[str, Any]:
        """Return the conflict document, or the plain error without one."""
        return self.document if self.document is not None else super().to_document()


class PolicyError(NoStackError):
    """Stacks fit, but the site's policy forbids them all; nothing was changed."""

    exit = Exit.REFUSED


class PreflightError(GpuSetupError):
    """A check before any change refused; nothing was changed."""

    exit = Exit.REFUSED


class UnreachableError(GpuSetupError):
    """A host or a mirror could not be reached."""

    exit = Exit.UNREACHABLE


class HostFailedError(GpuSetupError):
    """A host failed part-way; its state is recorded and the same command resumes."""

    exit = Exit.FAILED


class VerifyFailedError(GpuSetupError):
    """Installed, but the verification failed."""

    exit = Exit.VERIFY_FAILED


def reason(error: BaseException) -> str:
    """Return why something failed, without Python's number and the file's name, which the message has."""
    return getattr(error, "strerror", None) or str(error)


def wrong_field(error: Exception) -> tuple[str, str]:
    """Split a decoder's error into its message and the path of the field; `$` is the whole document."""
    if isinstance(error, (UnicodeError, RecursionError)):
        return "it is nested too deeply" if isinstance(error, RecursionError) else "it is not text in UTF-8", "$"
    if isinstance(error, JSONDecodeError):
        return f"JSON is malformed in line {error.lineno}, column {error.colno}", "$"
    text, _, path = str(error).partition(" - at `")
    return text.replace("Input data was truncated", "it is empty or cut off"), path.rstrip("`") or "$"
