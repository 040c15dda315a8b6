"""A resolved stack to keep: the document gpusetup/lock/1. Two machines with one lock get one stack."""

from __future__ import annotations

from msgspec import Struct

from gpusetup.model import Document
from gpusetup.model.request import Request
from gpusetup.model.stack import MatrixStamp, Stack

SCHEMA = "gpusetup/lock/1"


class PipRequirements(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Python side as requirements files: on a system toolkit, and with the CUDA libraries as wheels."""

    system: tuple[str, ...]
    wheels: tuple[str, ...]


class PipHashes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, complete: everything that those lines need in turn, each with the SHA-256 of its wheel."""

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
    """Why hashes that were asked for are not here: the index could not be asked, and only the direct pins are known."""
    digest: str
    """SHA-256 over stack and pip lines: what two locks have in common when they mean the same."""
