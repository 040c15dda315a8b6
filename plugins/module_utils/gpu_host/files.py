"""Writing files so that a power cut leaves the old one or the new one, never half of one."""

import hashlib
import json
import os
import tempfile


def read_text(path):
    """Return a file's text, None when it is missing."""
    raw = read_bytes(path)
    return None if raw is None else raw.decode("utf-8", "surrogateescape")


def read_bytes(path):
    """Return a file's bytes, None when it is missing."""
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return None


def digest(raw):
    """Return the SHA-256 of bytes or text."""
    if not isinstance(raw, bytes):
        raw = raw.encode("utf-8", "surrogateescape")
    return hashlib.sha256(raw).hexdigest()


def write_atomically(path, content, mode=0o644, lasting=True):
    """Replace a file in one step, flushed to the disk unless a power cut may take it along."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o755)
    handle, temporary = tempfile.mkstemp(prefix=".gpusetup-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    if lasting:
        _flush_folder(folder)


def link_atomically(path, target):
    """Replace a symbolic link in one step."""
    temporary = f"{path}.gpusetup-{os.getpid()}"
    os.symlink(target, temporary)
    os.rename(temporary, path)
    _flush_folder(os.path.dirname(path))


def _flush_folder(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path):
    """Return a JSON file's value, None when it is missing or damaged."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def write_json(path, value, mode=0o600, lasting=True):
    """Write a value as JSON in one step."""
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True) + "\n", mode, lasting)
