"""Write the column of tested systems on the page of features: `python -m tools.features`.

tools/features.json lists the tests of each row that need hosts: those with the vendor's or the distribution's own
packages, and those with stand-ins. A row without an entry has no such test.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/features.md"
EVIDENCE = Path(__file__).with_suffix(".json")
HEAD = ("what", "state", "seen on", "where it is shown")
KINDS = {"real": "", "stand-in": "stand-ins: "}
SYSTEMS = {
    "debian12": "Debian 12",
    "debian13": "Debian 13",
    "ubuntu2204-like": "Ubuntu 22.04",
    "ubuntu2404-like": "Ubuntu 24.04",
    "ubuntu2404-arm64-like": "Ubuntu 24.04 on arm64",
    "rocky9-like": "EL 9",
    "rhel9-like": "RHEL 9",
    "rocky9-dnf5-like": "Fedora",
    "leap15-like": "SUSE 15",
}
"""The page's names of the lab's host flavours."""
GPUS = {"h100": "an H100", "h200": "an H200"}
"""Machines with recorded observations, which lab hosts only simulate."""
DEFAULT = "debian12"
"""The default system of a lab host or a virtual machine."""


def systems(files: list[str]) -> str:
    """Return the systems that the tests run on; raise if a test file is missing."""
    found = set[str]()
    for name in files:
        text = (ROOT / name).read_text(encoding="utf-8")
        machine = Path(name).name.partition("-")[0]
        # A name on its own: rocky9-like is not rocky9-dnf5-like, and debian12-bare is Debian 12.
        told = {one for one in SYSTEMS if re.search(rf"(?<![\w-]){one}(?=[\"'-])", text)} or {DEFAULT}
        found |= {machine} if machine in GPUS else told
    return ", ".join(shown for name, shown in (GPUS | SYSTEMS).items() if name in found)


def page(text: str, evidence: dict[str, dict[str, list[str]]]) -> str:
    """Return the page with a new column of systems."""
    lines, left = [], set(evidence)
    for line in text.splitlines():
        cells = [cell.strip() for cell in line[1:].removesuffix("|").split(" |")]
        if line.startswith("|---"):
            lines.append("|---" * len(HEAD) + "|")
        elif not line.startswith("| "):
            lines.append(line)
        elif cells[0] == HEAD[0]:
            lines.append(f"| {' | '.join(HEAD)} |")
        else:
            seen = evidence.get(cells[0], {})
            left.discard(cells[0])
            told = [words + systems(seen[kind]) for kind, words in KINDS.items() if kind in seen]
            lines.append(f"| {' | '.join([*cells[:2], '; '.join(told), cells[-1]])} |".replace("|  |", "| |"))
    assert not left, f"no such row: {sorted(left)}"
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(
        page(PAGE.read_text(encoding="utf-8"), json.loads(EVIDENCE.read_text(encoding="utf-8"))), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
