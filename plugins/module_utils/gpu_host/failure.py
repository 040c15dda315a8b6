"""Failures reported to the user: what happened, where, why, and what to do."""

import errno
import os
import re
from typing import Any, Callable, Dict, Tuple

FULL = re.compile(r"No space left on device|Disk quota exceeded|into data and signature failed")
"""apt splits a signed list with a temporary file, for which a full /tmp has no room."""


class HostFailure(Exception):  # noqa: N818 - it is the host that failed
    """A module cannot continue; `reference` is a stable code listed in gpusetup/references.json."""

    def __init__(self, reference: str, message: str, context: str = "", note: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.fields = {"reference": reference, "message": message, "context": context, "note": note, "hint": hint}
        self.result: Dict[str, Any] = {}

    def text(self) -> str:
        """Return the failure as one paragraph for Ansible's `msg`."""
        parts = ["{reference}: {message}".format(**self.fields)]
        for key, title in (("context", "at"), ("note", "note"), ("hint", "do")):
            if self.fields[key]:
                parts.append(f"{title}: {self.fields[key]}")
        return "\n".join(parts)


def tried(step: Callable[..., Any], *arguments: Any) -> Tuple[Any, str]:
    """Return the result of a step, or why it failed: for steps after a failure, which must neither hide it nor end the
    steps that follow.
    """
    try:
        return step(*arguments), ""
    except HostFailure as failure:
        return None, str(failure.fields["message"])
    except OSError as error:
        return None, error.strerror or str(error)


def of_system(error: OSError) -> HostFailure:
    """Return an error of the system, such as a read-only file system, as a failure with a hint."""
    where = str(error.filename2 or error.filename or "")
    said = error.strerror or repr(error)
    if error.errno == errno.EROFS:
        hint = "mount -o remount,rw that file system; the kernel log (dmesg) may say why"
        return HostFailure("GS-472", "a file system is mounted read-only", where, said, hint)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space or inodes (df -h, df -i; apt-get clean, dnf clean all), then run the same command again"
        return HostFailure("GS-472", "the disk is full", where, said, hint)
    if error.errno == errno.EPERM and where:
        place = where if os.path.lexists(where) else os.path.dirname(where)
        hint = f"if lsattr -d {place} shows i or a: chattr -ia {place}; then run the same command again"
        return HostFailure("GS-498", "a file may not be changed, also not by root", where, said, hint)
    hint = "run the same command again; if it fails, check that the path is a file and root may write to it"
    return HostFailure("GS-498", "a file could not be read or written", where, said, hint)
