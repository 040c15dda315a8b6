"""Makes a lock of a resolution, and reads it back."""

import hashlib

import msgspec

from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import Matrix
from gpusetup.model import Reading, must_be
from gpusetup.model.lock import SCHEMA, Lock, PipHashes, PipRequirements
from gpusetup.model.settings import HashedLines
from gpusetup.model.stack import Resolution, Stack


def lock_of(resolution: Resolution, matrix: Matrix) -> Lock:
    """Return the lock of a resolution."""
    stack = resolution.stack
    pip = PipRequirements(
        system=python_requirements(stack, matrix, wheels=()), wheels=python_requirements(stack, matrix)
    )
    return Lock(
        matrix=resolution.matrix, request=resolution.request, stack=stack, pip=pip, digest=_digest(stack, pip, None)
    )


def with_hashes(lock: Lock, hashes: PipHashes) -> Lock:
    """Return the lock with wheel hashes from a package index."""
    return msgspec.structs.replace(lock, hashes=hashes, digest=_digest(lock.stack, lock.pip, hashes))


def hashed_lines(lock: Lock) -> tuple[HashedLines, ...]:
    """Return, for both sets of lines in a lock, the hashed lines that replace them on apply."""
    if lock.hashes is None:
        return ()
    python, arch = lock.hashes.python, lock.hashes.arch
    pairs = ((lock.pip.system, lock.hashes.system), (lock.pip.wheels, lock.hashes.wheels))
    return tuple(HashedLines(lines=lines, hashed=hashed, python=python, arch=arch) for lines, hashed in pairs)


def read_lock(raw: bytes, path: str) -> Lock:
    """Read a lock; raise if it was edited, so that its digest does not match."""
    with Reading(path, ("GS-341", "the lock cannot be used")):
        document = msgspec.json.decode(raw)
        must_be(document, path, ("a lock", SCHEMA, "GS-340"))
        lock = msgspec.convert(document, Lock)
    if lock.digest != _digest(lock.stack, lock.pip, lock.hashes):
        raise BadInputError(
            "GS-342", "the lock was edited after it was made: its digest does not match", path=f"{path}:$.digest"
        )
    return lock


def _digest(stack: Stack, pip: PipRequirements, hashes: PipHashes | None) -> str:
    said = [stack, pip] if hashes is None else [stack, pip, hashes]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()
