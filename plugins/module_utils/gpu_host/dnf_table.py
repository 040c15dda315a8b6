"""Parse the transaction table of dnf 4 and dnf 5 into a plan."""

import re
from typing import Dict, List, Optional, Tuple

from .packages import Plan
from .rpm import listed, note_removal

_HEADINGS = {
    "installing": "install",
    "installing dependencies": "install",
    "installing weak dependencies": "install",
    "installing group/module packages": "install",
    "upgrading": "upgrade",
    "downgrading": "downgrade",
    "reinstalling": "reinstall",
    "removing": "remove",
    "removing dependent packages": "remove",
    "removing unused dependencies": "remove",
}
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_ARCHES = ("x86_64", "aarch64", "noarch", "i686", "i386")


def parse(text: str, native: str) -> Plan:
    """Parse dnf's transaction table, which has one block with a heading per kind of change.

    Below a new package stands what it replaces: its own older version, which only dnf 5 lists, or another package,
    which is removed.
    """
    answer: Plan = {"install": {}, "upgrade": {}, "downgrade": {}, "remove": {}, "download_bytes": 0, "disk_bytes": 0}
    kind: Optional[str] = None
    pending: List[str] = []
    last = ""
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"^Transaction Summary", stripped):
            kind = None
        heading = re.match(r"^([A-Z][\w/ ]+):$", line)
        if heading:
            kind, pending = _HEADINGS.get(heading.group(1).lower()), []
            continue
        answer.update(_sizes(stripped))
        if kind is None or not stripped or stripped.startswith(("=", "-")):
            continue
        if stripped.startswith("replacing "):
            name, version = _replaced(stripped.split()[1:], native)
            if name != last:
                answer["remove"][name] = version
            continue
        pending += stripped.split()
        at = next((index for index, word in enumerate(pending) if word in _ARCHES and index), None)
        if at is not None and len(pending) > at + 2:
            after = at + 3 if pending[at + 1] == "<-" else at + 1  # "noarch <- x86_64" in newer dnf 5
            name, version, pending = listed(pending[at - 1], pending[at], native), pending[after], []
            if kind == "install":
                answer[kind][name] = version
            elif kind == "remove":
                note_removal(answer, name, version)
            elif kind in ("upgrade", "downgrade"):
                answer[kind][name] = ["", version]
            last = name
    return answer


def _replaced(words: List[str], native: str) -> Tuple[str, str]:
    """Return name and version of a line "replacing …": "NAME.ARCH VERSION" of dnf 4, "NAME ARCH VERSION …" of dnf 5."""
    if words[1] in _ARCHES:
        return listed(words[0], words[1], native), words[2]
    name, _dot, arch = words[0].rpartition(".")
    return listed(name, arch, native), words[1]


def _sizes(line: str) -> Dict[str, int]:
    size = re.match(r"^Total download size: ([\d.]+) ?(\w*)$", line) or re.search(
        r"Need to download ([\d.]+) (\w+)\.$", line
    )
    if size:
        return {"download_bytes": _bytes(size)}
    size = re.match(r"^(Installed|Freed) (?:size|space): ([\d.]+) ?(\w*)$", line, re.IGNORECASE)
    if size:
        return {"disk_bytes": _bytes(size, 2) * (1 if size.group(1).lower() == "installed" else -1)}
    size = re.match(r"^After this operation, ([\d.]+) (\w+) (extra will be used|will be freed)", line)
    return {"disk_bytes": _bytes(size) * (1 if "used" in size.group(3) else -1)} if size else {}


def _bytes(match: "re.Match[str]", group: int = 1) -> int:
    return int(float(match.group(group)) * _UNITS.get(match.group(group + 1).rstrip("B"), 1))
