"""Check a Python environment: is it still as gpusetup installed it, and can anyone but root change it?"""

import glob
import grp
import hashlib
import json
import os
import pwd
import stat
from typing import Any, Dict, List, Optional

MARK = "gpusetup.json"


def problem(expected: Dict[str, Any]) -> Optional[str]:
    """Return why an environment differs from {"path", "packages", "adopted"} as recorded, None when it does not."""
    path = expected["path"]
    if expected.get("adopted"):
        return None if os.access(path, os.X_OK) else "no such interpreter"
    mark = _mark(path)
    if mark is None or not os.access(os.path.join(path, "bin", "python"), os.X_OK):
        return "missing"
    if mark.get("packages") != expected.get("packages"):
        return "another set of requirements"
    return None if listing(path) == mark.get("listing") else "its packages were changed"


def changeable(interpreter: str) -> str:
    """Return a path of an interpreter that users other than root can change, "" when none: root would run their code.

    Checks the file, the targets of links, every folder above, pyvenv.cfg and the folders of packages.
    """
    prefix = os.path.dirname(os.path.dirname(interpreter))
    starts = [interpreter, prefix + "/pyvenv.cfg", *sorted(glob.glob(prefix + "/lib/python3*/site-packages"))]
    for start in [item for item in starts if os.path.lexists(item)]:
        for path in _upwards(os.path.abspath(start)) + _upwards(os.path.realpath(start)):
            if _others_write(path):
                return path
    return ""


def _upwards(path: str) -> List[str]:
    parent = os.path.dirname(path)
    return [path] if parent == path else [path, *_upwards(parent)]


def _others_write(path: str) -> bool:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return found.st_uid != 0
    mode = found.st_mode
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        mode &= ~(stat.S_IWGRP | stat.S_IWOTH)  # the sticky bit: nobody can replace another user's file
    by_group = bool(mode & stat.S_IWGRP) and _has_members(found.st_gid)
    return found.st_uid != 0 or bool(mode & stat.S_IWOTH) or by_group


def _has_members(group: int) -> bool:
    """Return whether a group has members besides root: Debian's own folders belong to an empty group."""
    if group == 0:
        return False
    try:
        members = grp.getgrgid(group).gr_mem
    except KeyError:
        return True
    return bool(members) or any(user.pw_gid == group and user.pw_uid != 0 for user in pwd.getpwall())


def listing(path: str) -> str:
    """Return a digest of the names and versions of an environment's packages."""
    found = []
    for folder, names, _files in os.walk(os.path.join(path, "lib")):
        if os.path.basename(folder) == "site-packages":
            found += [name for name in names if name.endswith((".dist-info", ".egg-info"))]
            names[:] = []
    return hashlib.sha256("\n".join(sorted(found)).encode("utf-8")).hexdigest()


def _mark(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(path, MARK), "rb") as handle:
            found = json.loads(handle.read().decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
