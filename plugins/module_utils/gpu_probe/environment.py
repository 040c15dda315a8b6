"""A Python environment that gpusetup made: is it still what was installed?"""

import hashlib
import json
import os

MARK = "gpusetup.json"


def problem(expected):
    """Return why an environment is not as it was installed, None when it is; expected is {"path", "packages", "adopted"}."""
    path = expected["path"]
    if expected.get("adopted"):
        return None if os.access(path, os.X_OK) else "there is no such interpreter"
    mark = _mark(path)
    if mark is None or not os.access(os.path.join(path, "bin", "python"), os.X_OK):
        return "missing"
    if mark.get("packages") != expected.get("packages"):
        return "another set of requirements"
    return None if listing(path) == mark.get("listing") else "its packages were changed"


def listing(path):
    """Return a digest of the names and versions of what is installed in an environment."""
    found = []
    for folder, names, _files in os.walk(os.path.join(path, "lib")):
        if os.path.basename(folder) == "site-packages":
            found += [name for name in names if name.endswith((".dist-info", ".egg-info"))]
            names[:] = []
    return hashlib.sha256("\n".join(sorted(found)).encode("utf-8")).hexdigest()


def _mark(path):
    try:
        with open(os.path.join(path, MARK), "rb") as handle:
            found = json.loads(handle.read().decode("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
