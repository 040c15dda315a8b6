"""A lock, the document gpusetup/lock/1: a resolved stack to keep. Machines with the same lock get the same stack."""

from msgspec import Struct

from gpusetup.model import Document
from gpusetup.model.request import Request
from gpusetup.model.stack import MatrixStamp, Stack

SCHEMA = "gpusetup/lock/1"


class PipRequirements(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Python part as requirements files: for a system toolkit, and with the CUDA libraries as wheels."""

    system: tuple[str, ...]
    wheels: tuple[str, ...]


class PipHashes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The complete requirements files: also all dependencies, each with the SHA-256 of its wheel."""

    python: str
    arch: str
    system: tuple[str, ...]
    wheels: tuple[str, ...]


class Lock(Document, frozen=True, kw_only=True, tag="gpusetup/lock/1"):
    """The document."""

    ok: bool = True
    matrix: MatrixStamp
    request: Request
    stack: Stack
    pip: PipRequirements
    hashes: PipHashes | None = None
    without_hashes: str = ""
    """Why requested hashes are missing: the index could not be reached, so only the direct pins are known."""
    digest: str
    """SHA-256 over stack and pip lines; equal for equivalent locks."""
