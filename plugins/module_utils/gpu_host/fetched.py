"""What one preview downloaded, kept for the next step: its folder stays for some minutes, then deletes itself.

Three steps ask the same repositories: which versions do they offer, what would this transaction do, then the
transaction. The second continues in the folder of the first, and apt gets the lists of the second instead of
downloading them again.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from typing import Dict, List, Optional

from . import files, sources

PLACE = "/var/tmp"  # noqa: S108 - mkdtemp makes what is in it
_USE_WITHIN, _DELETE_AFTER = 300, 600
_NAME = re.compile(r"^gpusetup-preview-\w+$")
_MESSAGES = "messages.json"
_NOT_FETCHED_BY = "/etc/apt/preferences.d/"
_held: Dict[str, int] = {}  # folder: the open handle that locks it until this process ends


def new_folder() -> str:
    """Create a folder for a preview after deleting those of killed previews."""
    sweep()
    while True:
        folder = tempfile.mkdtemp(prefix="gpusetup-preview-", dir=PLACE)
        if _hold(folder):  # else another sweep has deleted it
            os.chmod(folder, 0o755)  # noqa: S103 - apt fetches as a user of its own
            return folder


def drop(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder in _held:
        os.close(_held.pop(folder))


def sweep() -> None:
    """Delete folders that nobody uses any more, because their preview, or what was to delete them, was killed."""
    for name in os.listdir(PLACE):
        folder = os.path.join(PLACE, name)
        if not _is_ours(folder):
            continue
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # deleted meanwhile
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use
            pass
        finally:
            os.close(handle)


def _hold(folder: str) -> bool:
    """Keep `sweep` from deleting a folder; return whether it exists."""
    if folder in _held:
        return True
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    fcntl.flock(handle, fcntl.LOCK_SH)
    if not os.path.isdir(folder):
        os.close(handle)
        return False
    _held[folder] = handle
    return True


def leave(folder: str, messages: List[str]) -> None:
    """Keep a folder for the next preview."""
    files.write_json(os.path.join(folder, _MESSAGES), messages)
    keep = [_held.pop(folder)] if _hold(folder) else []  # the process that will delete it holds the lock
    wait = f'n={_DELETE_AFTER}; while [ $((n-=10)) -ge 0 ] && [ -d "$0" ]; do sleep 10; done; exec rm -rf -- "$0"'
    argv = ["/bin/sh", "-c", wait, folder]
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/", pass_fds=keep
    )
    for handle in keep:
        os.close(handle)


def link_tree(origin: str, target: str) -> None:
    """Give the preview the existing lists, so that unchanged ones are not downloaded again."""
    os.makedirs(target)
    for name in os.listdir(origin) if os.path.isdir(origin) else []:
        path = os.path.join(origin, name)
        if os.path.isfile(path) and name != "lock":
            try:
                os.link(path, os.path.join(target, name))
            except OSError:
                shutil.copy2(path, os.path.join(target, name))


def take(left: str, folder: str) -> Optional[List[str]]:
    """Continue in an earlier preview's folder with the sources in `folder`; return its messages, None if it cannot be
    used.

    It can be used if both have the same addresses and keys in the files below etc/. It is not moved, because apt's
    caches contain its path.
    """
    messages, asked = _messages(left), _asked(folder)
    if messages is None or not _same(left, folder, asked) or not _hold(left):
        return None
    try:  # sources are not rewritten: apt would rebuild its caches for a newer file
        for path in _below(os.path.join(left, "etc")):
            if path[len(left) :] not in asked:
                os.unlink(path)
        for path in _below(os.path.join(folder, "etc")):
            if path[len(folder) :] not in asked:
                files.write_atomically(
                    left + path[len(folder) :], files.read_bytes(path) or b"", os.stat(path).st_mode & 0o777
                )
    except OSError:
        return None
    drop(folder)
    return messages


def hand_over(left: str, root: str = "/") -> bool:
    """Give apt the lists of a preview without trouble if it used the host's present sources; return whether that was
    done.
    """
    root = root.rstrip("/")
    if _messages(left) != [] or _sources(left) != _sources(root) or not _same(left, root, _asked(left)):
        return False
    lists, target = os.path.join(left, "lists"), root + "/var/lib/apt/lists"
    try:
        with open(os.path.join(target, "lock"), "a") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Signed indexes go last: after an interruption apt sees old lists and downloads the new ones.
            for name in sorted(os.listdir(lists), key=lambda name: (name.endswith("Release"), name)):
                if name != "lock" and os.path.isfile(os.path.join(lists, name)):
                    _move(os.path.join(lists, name), target, name)
    except OSError:  # another process updates them, or they are kept elsewhere
        return False
    shutil.rmtree(left, ignore_errors=True)
    return True


def _move(path: str, target: str, name: str) -> None:
    try:
        os.rename(path, os.path.join(target, name))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        half = os.path.join(target, "partial", name)
        shutil.copy2(path, half)
        os.rename(half, os.path.join(target, name))


def _messages(left: str) -> Optional[List[str]]:
    """Return the messages of a preview, None if its folder is not ours, too old or gone."""
    try:
        if not _is_ours(left):
            return None
        if time.time() - os.stat(os.path.join(left, _MESSAGES)).st_mtime > _USE_WITHIN:
            return None
    except OSError:
        return None
    found_messages: Optional[List[str]] = files.read_json(os.path.join(left, _MESSAGES))
    return found_messages


def _is_ours(folder: str) -> bool:
    """Return whether a path is the folder of a preview: everybody can write to /var/tmp."""
    if os.path.dirname(folder) != PLACE or not _NAME.fullmatch(os.path.basename(folder)):
        return False
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _asked(root: str) -> List[str]:
    """Return the files with addresses and keys that a preview used, as paths on the host."""
    found = [path[len(root) :] for path in _below(os.path.join(root, "etc"))]
    return [path for path in found if not path.startswith(_NOT_FETCHED_BY)]


def _sources(root: str) -> List[str]:
    """Return the files that tell apt what to download, as paths on the host."""
    layout = sources.Layout(root + "/")
    parts = [path for path in _below(layout.apt_sources) if path.endswith((".list", ".sources"))]
    return [path[len(root) :] for path in [*parts, layout.apt_list] if os.path.exists(path)]


def _below(folder: str) -> List[str]:
    return sorted(os.path.join(base, name) for base, _folders, names in os.walk(folder) for name in names)


def _same(left: str, root: str, paths: List[str]) -> bool:
    """Return whether a preview's files equal those below another root; each may contain its own root."""
    for path in paths:
        there, here = files.read_text(left + path), files.read_text(root + path)
        if there is None or here is None or there.replace(left, "") != (here.replace(root, "") if root else here):
            return False
    return True
