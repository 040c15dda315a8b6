"""Write files so that a power cut leaves either the old or the new content, never a part."""

import base64
import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from .failure import HostFailure

Content = Union[bytes, str]
Owner = Tuple[int, int]
_BLANKS = re.compile(rb"[\s,]+")
_MOUNTS = "/proc/self/mountinfo"
_TELLING = re.compile(rb"\w.*\w.*\w", re.DOTALL)


def read_text(path: str) -> Optional[str]:
    """Return a file's text, None if it is missing; raise if it cannot be read."""
    raw = read_bytes(path)
    return None if raw is None else raw.decode("utf-8", "surrogateescape")


def read_bytes(path: str) -> Optional[bytes]:
    """Return a file's bytes, None if it is missing; raise if it cannot be read: that is not the same as missing.

    A pipe, a socket and a device count as empty, because reading one may never end.
    """
    try:
        if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            return b""
        with open(path, "rb") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def changed_at(path: str) -> float:
    """Return when a file changed; if it is gone, when the nearest existing folder above it changed, which is about
    then; 0 for a time in the future, which a wrong clock left and which would stay newer than all that follows.
    """
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    status = os.lstat(path)
    return status.st_mtime if status.st_mtime <= time.time() else 0.0


def refuse_mounted(path: str) -> None:
    """Fail if a path is a mount point, such as a file that is mounted alone, which no rename can replace."""
    mounts = (read_text(_MOUNTS) or "").splitlines()
    if os.path.realpath(path) in [line.split()[4] for line in mounts]:
        hint = f"umount {path}, or change it where it is mounted from; then run the same command again"
        raise HostFailure("GS-480", f"{path} is mounted alone, so gpusetup cannot replace it: umount it", hint=hint)


def digest(content: Content) -> str:
    return hashlib.sha256(_raw(content)).hexdigest()


def edit(path: str, content: Content, mode: int = 0o644, owner: Optional[Owner] = None) -> None:
    """Replace the content of a file that others use too: an existing file keeps its mode, its owner and its symbolic
    link.

    `mode` and `owner` apply to a new file only. A link to a device, such as /dev/null, is replaced, never the device.
    """
    target = os.path.realpath(path)
    if os.path.isfile(target):
        seen = os.stat(target)
        mode, owner = stat.S_IMODE(seen.st_mode), (seen.st_uid, seen.st_gid)
    _replace(path if os.path.exists(target) and not os.path.isfile(target) else target, content, mode, owner)


def write_atomically(path: str, content: Content, mode: int = 0o644, lasting: bool = True) -> None:
    """Replace a file of our own in one step; with `lasting`, flushed to disk so that it survives a power cut."""
    _replace(path, content, mode, None, lasting)


def _replace(path: str, content: Content, mode: int, owner: Optional[Owner], lasting: bool = True) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o755, exist_ok=True)
    # mode 0600: nobody may read it yet
    handle, temporary = tempfile.mkstemp(prefix=_half(path), dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(_raw(content))
            stream.flush()
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(stream.fileno(), owner[0], owner[1])
            os.fchmod(stream.fileno(), mode)
            set_attributes(temporary, attributes(path))
            if lasting:
                os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    if lasting:
        _flush_folder(folder)


def _half(path: str) -> str:
    """Return the prefix of the temporary files from which `path` is made."""
    return f".gpusetup-{os.path.basename(path)[:100]}-"


def sweep(path: str) -> None:
    """Delete temporary files that an interrupted write of `path` left; only for files with a single writer."""
    folder = os.path.dirname(path)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.startswith(_half(path)) and "-" not in name[len(_half(path)) :]:
            os.unlink(os.path.join(folder, name))


def attributes(path: str) -> Dict[str, bytes]:
    """Return a file's extended attributes: SELinux label, access lists, users' own."""
    if not hasattr(os, "listxattr"):  # a controller without Linux
        return {}
    try:
        names = os.listxattr(path)
    except OSError:  # no such file, or no support in the file system
        return {}
    # Those two are checksums of the content, which the kernel computes; old ones would make the file unreadable.
    return {name: os.getxattr(path, name) for name in names if name not in ("security.ima", "security.evm")}


def set_attributes(path: str, wanted: Dict[str, bytes]) -> None:
    there = attributes(path) if wanted else {}
    for name, value in sorted(wanted.items()):
        if there.get(name) != value:
            os.setxattr(path, name, value)


def link_atomically(path: str, target: str) -> None:
    """Create or replace a symbolic link in one step."""
    temporary = os.path.join(os.path.dirname(path), _half(path) + "link")
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)
    _flush_folder(os.path.dirname(path))


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold an exclusive lock; the kernel releases it however the process ends."""
    while True:
        os.makedirs(os.path.dirname(path), 0o711, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # a removal deleted this file meanwhile: the next one to come would lock another
    try:
        yield
    finally:
        os.close(handle)


def _raw(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")


def _flush_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: str) -> Any:
    """Return a JSON file's value, None if it is missing or damaged."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def write_json(path: str, value: Any, mode: int = 0o600, lasting: bool = True) -> None:
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True) + "\n", mode, lasting)


def folders_of_ours(path: str, state: Mapping[str, Any]) -> List[str]:
    """Return the folders above a path that exist only because of the recorded state, the innermost first."""
    made = set().union(*state["folders"].values(), *(entry.get("folders", ()) for entry in state["files"].values()))
    found, folder = [], os.path.dirname(path)
    while folder in made or not os.path.isdir(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def drop_folders(folders: Iterable[str]) -> None:
    """Remove the folders that were made for a recorded path, as far as they are empty."""
    for folder in folders:
        if os.path.isdir(folder) and not os.path.islink(folder) and not os.listdir(folder):
            os.rmdir(folder)


def drop_compiled(path: str) -> None:
    """Delete the bytecode that Python cached for a program of ours; it would keep our folders from being removed."""
    name, ending = os.path.splitext(os.path.basename(path))
    cache = os.path.join(os.path.dirname(path), "__pycache__")
    if ending != ".py" or not os.path.isdir(cache):
        return
    for compiled in os.listdir(cache):
        if compiled.endswith(".pyc") and compiled.partition(".")[0] == name:
            os.unlink(os.path.join(cache, compiled))
    if not os.listdir(cache):
        os.rmdir(cache)


def has_ours(there: bytes, ours: Optional[bytes], original: bytes) -> bool:
    """Return whether a file still contains a line that we added; True if what we wrote is unknown.

    Whitespace and commas are ignored, because programs that write settings reformat them.
    """
    if ours is None:
        return True
    text, before = _bare(there), _bare(original)
    added = {_bare(line) for line in ours.splitlines()}
    return any(line in text for line in added if _TELLING.search(line) and line not in before)


def _bare(text: bytes) -> bytes:
    return _BLANKS.sub(b"", text)


def put_back(path: str, raw: bytes, kept: Mapping[str, Any]) -> None:
    """Give a file an earlier content with all that was recorded of it."""
    owner = kept.get("owner")
    if kept.get("link") and not os.path.islink(path):
        link_atomically(path, kept["link"])
    edit(path, raw, kept["mode"], (owner[0], owner[1]) if owner else None)
    os.chmod(path, kept["mode"])
    set_attributes(path, {name: base64.b64decode(text) for name, text in (kept.get("attributes") or {}).items()})


def _place_of(path: str, content: bytes) -> str:
    """Return where to copy an edited file: never into a folder of drop-ins, where some programs read every file."""
    folder, name = os.path.split(path)
    if folder.endswith(".d"):
        folder = os.path.dirname(folder)
    place, number = os.path.join(folder, name + ".gpusetup-saved"), 1
    while os.path.lexists(place) and read_bytes(place) != content:
        number += 1
        place = os.path.join(folder, f"{name}.gpusetup-saved-{number}")
    return place


def put_aside(path: str, content: bytes) -> str:
    """Copy an edited file, with its owner, mode and extended attributes, next to itself; return where."""
    place, seen = _place_of(path, content), os.stat(path)
    _replace(place, content, stat.S_IMODE(seen.st_mode), (seen.st_uid, seen.st_gid))
    set_attributes(place, attributes(path))
    return place
