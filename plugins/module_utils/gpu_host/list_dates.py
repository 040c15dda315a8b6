"""When the package lists of a repository were made, by their signed index: detects a repository that was replaced by an
older one with a valid signature.
"""

import calendar
import email.utils
import glob
import os
import re
import time
from typing import Dict, Iterable, List, Tuple

from ..gpu_probe import packages as probe
from ..gpu_probe.host import LiveHost
from . import files

_DAY, _FORM = 86400, "%Y-%m-%dT%H:%M:%SZ"
_PLACES = ("/var/lib/apt/lists", "/var/cache/dnf", "/var/cache/libdnf5", "/var/cache/zypp/raw")
_BELOW = ("lists", "cache", "cache/raw")
_ADDRESS = re.compile(r"^[\w+]+:(?://(?:[^/@]*@)?)?")


def of(sources: Iterable[Tuple[str, str]], folder: str = "") -> Dict[str, str]:
    """Return {address: time} for (name, address) of repositories; `folder` is that of a preview."""
    places = [os.path.join(folder, part) for part in _BELOW] if folder else _PLACES
    indices = [path for place in places for path in glob.glob(os.path.join(glob.escape(place), "*Release"))]
    indices += [
        path for place in places for path in glob.glob(os.path.join(glob.escape(place), "*/repodata/repomd.xml"))
    ]
    found = {}
    for name, address in sources:
        times = [_made(path) for path in indices if _is_of(path, name, address)]
        if any(times):
            found[address] = max(times)
    return found


def of_host(ours: Iterable[str]) -> Dict[str, str]:
    """Do the same for the repositories in these files of the host."""
    there = [item for item in probe.sources(LiveHost()) if item["file"] in set(ours)]
    return of([(item["suites"][0] if item["suites"] else "", item["uri"]) for item in there])


def older(now: Dict[str, str], before: Dict[str, str]) -> List[str]:
    """Return, as texts, the repositories that went back in time; over a network by more than a day, because not all
    servers of a vendor are up to date at once.
    """
    return [
        f"the package lists of {address} are of {made}, this host has used those of {before[address]}"
        for address, made in sorted(now.items())
        if _seconds(before.get(address) or made) - _seconds(made) > (0 if address.startswith("file:") else _DAY)
    ]


def _seconds(text: str) -> int:
    try:
        return calendar.timegm(time.strptime(text, _FORM))
    except ValueError:
        return 0


def forget(addresses: Iterable[str], folder: str) -> None:
    """Delete apt's lists of these repositories: apt silently keeps newer ones, which would hide that one went back."""
    ours = tuple(_mangled(address) + "_" for address in addresses)
    for path in glob.glob(os.path.join(glob.escape(folder), _BELOW[0], "*")):
        if os.path.basename(path).startswith(ours):
            os.unlink(path)


def _mangled(address: str) -> str:
    return _ADDRESS.sub("", address).rstrip("/").replace("_", "%5f").replace("/", "_")


def _is_of(path: str, name: str, address: str) -> bool:
    """Return whether an index belongs to a repository: apt's file has its address, others' folder its name."""
    if path.endswith("Release"):
        return os.path.basename(path).startswith(_mangled(address) + "_")
    folder = os.path.basename(os.path.dirname(os.path.dirname(path)))
    return bool(re.fullmatch(re.escape(name) + r"(?:-[0-9a-f]{16})?", folder))


def _made(path: str) -> str:
    text = files.read_text(path) or ""
    line = re.search(r"^Date:\s*(.+)$", text, re.MULTILINE)
    told = email.utils.parsedate_tz(line.group(1)) if line else None
    revision = re.search(r"<revision>(\d{9,11})</revision>", text)
    seconds = email.utils.mktime_tz(told) if told else int(revision.group(1)) if revision else None
    return time.strftime(_FORM, time.gmtime(seconds)) if seconds is not None else ""
