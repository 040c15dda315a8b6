"""Parse what zypper prints with --xmlout, tag by tag: if it stops early, the document is incomplete."""

import re
from html import unescape
from typing import Dict, Iterator, List, Optional, Tuple

from .packages import Plan
from .rpm import listed, note_removal

_TAG = re.compile(r"<(/?)([a-z-]+)((?:\s+[\w-]+=\"[^\"]*\"|\s+[\w-]+='[^']*')*)\s*/?>")
_ATTRIBUTE = re.compile(r"([\w-]+)=[\"']([^\"']*)[\"']")
_MESSAGE = re.compile(r"<message type=\"(?:error|warning)\">(.*?)</message>", re.DOTALL)
_PROBLEM = re.compile(r"<description>(Problem: .*?)</description>", re.DOTALL)
_KINDS = ("install", "upgrade", "downgrade", "remove")


def solvables(text: str) -> Iterator[Tuple[str, Dict[str, str]]]:
    """Yield each solvable's attributes with the list that contains it (to-install, to-upgrade, …)."""
    section = ""
    for match in _TAG.finditer(text):
        closing, tag, rest = match.groups()
        if tag.startswith("to-"):
            section = "" if closing else tag
        elif tag == "solvable" and not closing:
            yield section, {name: unescape(value) for name, value in _ATTRIBUTE.findall(rest)}


def offered(text: str) -> List[Dict[str, str]]:
    """Return what a search found in repositories, newest first: name, edition, arch, repository."""
    rows = [row for _section, row in solvables(text) if row.get("kind") == "package" and row.get("repository")]
    return [row for row in rows if not row["repository"].startswith("(")]  # "(System Packages)"


def plan(text: str, native: str) -> Optional[Plan]:
    """Return the summary of a transaction, None if zypper reached none."""
    summary = re.search(r"<install-summary([^>]*)>", text)
    if summary is None:
        return None
    sizes = dict(_ATTRIBUTE.findall(summary.group(1)))
    answer: Plan = {kind: {} for kind in _KINDS}
    answer.update(download_bytes=_number(sizes.get("download-size")), disk_bytes=_number(sizes.get("space-usage-diff")))
    for section, row in solvables(text):
        kind = next((kind for kind in _KINDS if section.startswith("to-" + kind)), None)
        kind = "upgrade" if section == "to-change-arch" else kind
        if kind is None or row.get("type") != "package":
            continue
        name, version = listed(row["name"], row["arch"], native), row["edition"]
        if kind == "remove":
            note_removal(answer, name, version)
        else:
            answer[kind][name] = version if kind == "install" else [row.get("edition-old", ""), version]
    return answer


def reasons(text: str) -> List[str]:
    """Return zypper's problems, or if there are none its errors and warnings; one line each."""
    found = _PROBLEM.findall(text) or _MESSAGE.findall(text)
    lines = (" ".join(unescape(unescape(item)).split()) for item in found)
    return list(dict.fromkeys(line for line in lines if line))


def _number(text: Optional[str]) -> int:
    return int(text) if text and re.fullmatch(r"-?\d+", text) else 0
