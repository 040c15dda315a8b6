"""The README as the front page of a package, with absolute links instead of links to files of the repository.

The repository's address is GPUSETUP_REPOSITORY, else git's "origin" if that is a web address. Without one, links into
the repository become plain text.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def repository(root: Path) -> str:
    """Return the address of the repository's page without a final slash, or an empty string."""
    told = os.environ.get("GPUSETUP_REPOSITORY", "")
    if not told and (root / ".git").exists():
        argv = ["git", "-C", str(root), "config", "--get", "remote.origin.url"]
        told = subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()
    address = re.sub(r"^git@([\w.-]+):", r"https://\1/", told).removesuffix(".git").rstrip("/")
    if not re.fullmatch(r"https?://[\w.-]+(:\d+)?/[\w./-]+", address):  # also: nobody's password is in it
        return ""
    return address


def page(text: str, home: str, version: str) -> str:
    """Return the README with absolute links to the files of this version."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, place = found.groups()
        if not home:
            return "" if picture else words
        return f"{picture}[{words}]({home}/{'raw' if picture else 'blob'}/v{version}/{place})"

    return _LINK.sub(absolute, text)


def addresses(home: str, version: str) -> dict[str, str]:
    """Return the project's addresses by the labels of the Python index."""
    if not home:
        return {}
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/v{version}/docs/guides",
        "Source": home,
        "Issues": f"{home}/issues",
        "Changelog": f"{home}/blob/v{version}/CHANGELOG.md",
    }
