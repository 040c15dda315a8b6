"""What one preview fetched, for the next one: its folder stays for some minutes, then it deletes itself.

Two looks belong together: what do the repositories offer, then what would this very transaction do. The second one need not
fetch the lists again, if it asks the same repositories.
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
import time

from . import files

PLACE = "/var/tmp"  # noqa: S108 - the folder in it has a name that nobody can foresee, and its owner is looked at
_USE_WITHIN, _DELETE_AFTER = 300, 600
_NAME = re.compile(r"^gpusetup-preview-\w+$")
_MESSAGES = "messages.json"
_NOT_FETCHED_BY = "etc/apt/preferences.d"


def new_folder():
    """Make a folder for one preview."""
    folder = tempfile.mkdtemp(prefix="gpusetup-preview-", dir=PLACE)
    os.chmod(folder, 0o755)  # apt fetches as a user of its own
    return folder


def leave(folder, messages):
    """Keep a folder for the look that follows."""
    files.write_json(os.path.join(folder, _MESSAGES), messages)
    wait = 'n={}; while [ $((n-=10)) -ge 0 ] && [ -d "$0" ]; do sleep 10; done; exec rm -rf -- "$0"'.format(_DELETE_AFTER)
    argv = ["/bin/sh", "-c", wait, folder]
    nothing = subprocess.DEVNULL
    subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")


def take(left, folder, part):
    """Move what was fetched, `part` of a folder, into another preview's folder; return the messages of that time, None when it cannot be used.

    It can when every address and key here is there too: the files below etc/ are compared.
    """
    try:
        if os.path.dirname(left) != PLACE or not _NAME.match(os.path.basename(left)):
            return None
        found = os.lstat(left)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None
        if time.time() - os.stat(os.path.join(left, _MESSAGES)).st_mtime > _USE_WITHIN:
            return None
        messages = files.read_json(os.path.join(left, _MESSAGES))
        if messages is None or not all(_same(left, folder, path) for path in _sources(folder)):
            return None
        os.rename(os.path.join(left, part), os.path.join(folder, part))
    except OSError:
        return None
    shutil.rmtree(left, ignore_errors=True)
    return messages


def _sources(folder):
    for base, _folders, names in os.walk(os.path.join(folder, "etc")):
        if base != os.path.join(folder, _NOT_FETCHED_BY):
            for name in names:
                yield os.path.join(base, name)


def _same(left, folder, path):
    there = files.read_text(left + path[len(folder) :])
    return there is not None and there.replace(left, "") == files.read_text(path).replace(folder, "")
