"""Sources of facts: a live machine, a folder with a captured root, or either of them with every answer recorded.

A fact is read either from a file below the root, or as an observation (any other answer: a command's output, free
space, the members of an initramfs). A capture keeps files as files and observations in one JSON file, so the same
probe code yields the same facts from it.
"""

import errno
import fnmatch
import json
import os
import re
import stat
from typing import Any, Callable, Dict, List, Optional, Set

from . import commands

CAPTURE_FILE = "gpusetup-capture.json"
_FILE_LIMIT = 64 * 1024 * 1024
_PIECE = 64 * 1024
_DENIED = (errno.EACCES, errno.EPERM, errno.EIO)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe, as logind has among its sessions' files, reads as empty instead of blocking."""
    return os.open(path, flags | os.O_NONBLOCK)


def _all_of(handle: Any, limit: int) -> bytes:
    """Read in pieces: files below /proc/sys refuse one large read."""
    parts, size = [], 0
    while size < limit:
        piece = handle.read(min(_PIECE, limit - size))
        if not piece:
            break
        parts.append(piece)
        size += len(piece)
    return b"".join(parts)


def lines_with(pattern: str) -> Callable[[str], str]:
    """Return what keeps, of a text, the lines in which a pattern is found."""
    return lambda text: "".join(line for line in text.splitlines(True) if re.search(pattern, line))


class LiveHost:
    """The machine this runs on."""

    live = True
    root = "/"

    def __init__(self) -> None:
        self.unreadable: Dict[str, str] = {}

    def inside(self, path: str) -> str:
        """Return the path to open for a path of the host."""
        return path

    def read_bytes(self, path: str, field: Optional[str] = None, limit: int = _FILE_LIMIT) -> Optional[bytes]:
        """Return a file's bytes, None when it is missing or (then noted) unreadable."""
        try:
            with open(self.inside(path), "rb", buffering=0, opener=_without_waiting) as handle:
                return _all_of(handle, limit)
        except (OSError, ValueError) as error:
            self._denied(path, field, error)
            return None

    def read(self, path: str, field: Optional[str] = None, keep: Optional[Callable[..., Any]] = None) -> Optional[str]:
        """Return a file's text; `keep` reduces it to what is needed, also in a capture."""
        raw = self.read_bytes(path, field)
        if raw is None:
            return None
        text = raw.decode("utf-8", "replace")
        return keep(text) if keep else text

    def value(self, path: str, field: Optional[str] = None) -> Optional[str]:
        """Return the one-line content of an attribute file without blanks, None when missing or empty."""
        text = self.read(path, field)
        return (text.strip() or None) if text is not None else None

    def names(self, folder: str, pattern: str = "*", field: Optional[str] = None) -> List[str]:
        """Return the sorted names in a folder that fit a pattern; an empty list when there is no such folder."""
        try:
            found = os.listdir(self.inside(folder))
        except (OSError, ValueError) as error:
            self._denied(folder, field, error)
            return []
        return sorted(fnmatch.filter(found, pattern))

    def link(self, path: str) -> Optional[str]:
        """Return the text of a symbolic link, None when the path is no link."""
        try:
            return os.readlink(self.inside(path))
        except (OSError, ValueError):  # a path from a damaged file may have a zero byte
            return None

    def kind(self, path: str) -> Optional[str]:
        """Return "folder", "file" or None; links are followed."""
        try:
            return "folder" if stat.S_ISDIR(os.stat(self.inside(path)).st_mode) else "file"
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        return self.kind(path) is not None

    def observe(self, label: str, look: Callable[..., Any]) -> Any:  # noqa: ARG002 - used by subclasses
        """Return `look()`; a recorder keeps the answer as JSON under `label`."""
        return look()

    def run(self, label: str, argv: List[str], seconds: float = 10) -> Dict[str, Any]:
        """Run a command and return its answer; see commands.run."""
        answer: Dict[str, Any] = self.observe("command:" + label, lambda: commands.run(argv, seconds))
        return answer

    def note(self, field: str, reason: str) -> None:
        """Remember that a field could not be read, and why."""
        self.unreadable.setdefault(field, reason)

    def _denied(self, path: str, field: Optional[str], error: Any) -> None:
        if getattr(error, "errno", None) in _DENIED:
            self.note(field or path, f"{path}: {os.strerror(error.errno)}")


class FolderHost(LiveHost):
    """A folder that stands in for a machine; symbolic links cannot lead out of it."""

    live = False

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = os.path.abspath(root)
        self.observations = {}
        self.denied = {}
        path = os.path.join(self.root, CAPTURE_FILE)
        if os.path.exists(path):
            with open(path, "rb") as handle:
                capture = json.loads(handle.read().decode("utf-8"))
            self.observations = capture.get("observations", {})
            self.denied = capture.get("denied", {})

    def inside(self, path: str) -> str:
        """Return the path below the root, following links as the machine itself would."""
        pending = [part for part in path.split("/") if part]
        resolved: List[str] = []
        for _hop in range(200):
            if not pending:
                break
            part = pending.pop(0)
            if part == "..":
                resolved = resolved[:-1]
                continue
            if part == ".":
                continue
            candidate = os.path.join(self.root, *([*resolved, part]))
            target = os.readlink(candidate) if pending and os.path.islink(candidate) else None
            if target is None:
                resolved.append(part)
                continue
            resolved = [] if target.startswith("/") else resolved
            pending = [piece for piece in target.split("/") if piece] + pending
        return os.path.join(self.root, *resolved)

    def read_bytes(self, path: str, field: Optional[str] = None, limit: int = _FILE_LIMIT) -> Optional[bytes]:
        """Return a file's bytes; a file that was unreadable when captured stays so."""
        if path in self.denied:
            self.note(field or path, self.denied[path])
            return None
        return super().read_bytes(self._followed(path), field, limit)

    def names(self, folder: str, pattern: str = "*", field: Optional[str] = None) -> List[str]:
        """Return the names in a folder; a folder that was unreadable when captured stays so."""
        if folder in self.denied:
            self.note(field or folder, self.denied[folder])
            return []
        return super().names(self._followed(folder), pattern, field)

    def kind(self, path: str) -> Optional[str]:
        """Return "folder", "file" or None; links are followed inside the root."""
        return super().kind(self._followed(path))

    def observe(self, label: str, look: Callable[..., Any]) -> Any:  # noqa: ARG002 - a capture does not look
        """Return the recorded answer, None when the capture holds none."""
        return self.observations.get(label)

    def run(self, label: str, argv: List[str], seconds: float = 10) -> Dict[str, Any]:  # noqa: ARG002 - nor does it run
        """Return the recorded answer of a command; without one, as if the program were missing."""
        recorded: Dict[str, Any] = self.observe("command:" + label, dict)  # a FolderRecorder records it too
        return recorded or {"rc": None, "out": "", "err": "", "why": "missing"}

    def _followed(self, path: str) -> str:
        """Return the host's path with a link in the last part resolved as well."""
        return (
            path
            if not os.path.islink(self.inside(path))
            else "/" + os.path.relpath(self.inside(path + "/."), self.root)
        )


class Recorder(LiveHost):
    """The machine this runs on, with every answer recorded for a capture."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.files: Dict[str, bytes] = {}
        self.reduced_to_nothing: Set[str] = set()
        self.asked: Set[str] = set()
        self.folders: Set[str] = set()
        self.links: Dict[str, str] = {}
        self.refused: Dict[str, str] = {}
        self.answers: Dict[str, Any] = {}

    def read_bytes(self, path: str, field: Optional[str] = None, limit: int = _FILE_LIMIT) -> Optional[bytes]:
        raw = super().read_bytes(path, field, limit)
        if raw is not None:
            self.files[path] = raw
        return raw

    def read(self, path: str, field: Optional[str] = None, keep: Optional[Callable[..., Any]] = None) -> Optional[str]:
        """Read a file and record what `keep` left of it."""
        text = super().read(path, field, keep)
        if text is not None and keep:
            self.files[path] = text.encode("utf-8")
            if not text.strip():
                self.reduced_to_nothing.add(path)
        return text

    def names(self, folder: str, pattern: str = "*", field: Optional[str] = None) -> List[str]:
        found = super().names(folder, pattern, field)
        for path in [folder] + [folder.rstrip("/") + "/" + name for name in found]:
            self._remember(path)
        return found

    def link(self, path: str) -> Optional[str]:
        target = super().link(path)
        if target is not None:
            self.links[path] = target
        return target

    def kind(self, path: str) -> Optional[str]:
        self.asked.add(path)
        return self._remember(path)

    def _remember(self, path: str) -> Optional[str]:
        kind = super().kind(path)
        if kind == "folder":
            self.folders.add(path)
        elif kind == "file":
            self.files.setdefault(path, b"")
        return kind

    def observe(self, label: str, look: Callable[..., Any]) -> Any:
        answer = super().observe(label, look)
        if answer is not None:
            self.answers[label] = answer
        return answer

    def _denied(self, path: str, field: Optional[str], error: Any) -> None:
        super()._denied(path, field, error)
        if getattr(error, "errno", None) in _DENIED:
            self.refused[path] = f"{path}: {os.strerror(error.errno)}"


class FolderRecorder(Recorder, FolderHost):
    """A captured machine, recorded again."""


def open_host(root: str = "/") -> LiveHost:
    """Return the live machine for "/", else a folder that stands in for one."""
    return LiveHost() if root in ("", "/") else FolderHost(root)
