"""A Python environment: is what gpusetup made still what was installed, and who but root can change it?"""

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
    """Return why an environment is not as it was installed, None when it is; expected is {"path", "packages",
    "adopted"}.
    """
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
    """Return what of an interpreter somebody other than root can change, "" when nothing: as root it would be their
    code.

    Looked at are the file itself, where links lead to, every folder above, and where its packages are.
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
        mode &= ~(stat.S_IWGRP | stat.S_IWOTH)  # there nobody can take the place of another's file
    by_group = bool(mode & stat.S_IWGRP) and _has_members(found.st_gid)
    return found.st_uid != 0 or bool(mode & stat.S_IWOTH) or by_group


def _has_members(group: int) -> bool:
    """Say whether anybody but root is in a group: Debian's own folders belong to one that is empty."""
    if group == 0:
        return False
    try:
        members = grp.getgrgid(group).gr_mem
    except KeyError:
        return True
    return bool(members) or any(user.pw_gid == group and user.pw_uid != 0 for user in pwd.getpwall())


def listing(path: str) -> str:
    """Return a digest of the names and versions of what is installed in an environment."""
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
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
