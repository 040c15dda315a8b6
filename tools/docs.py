"""Build the documentation: what is written by hand, and the pages that the program writes about itself.

./dev docs [FOLDER]     FOLDER is build/docs when none is named; it is made anew
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from gpusetup.doctor import pages as messages
from gpusetup.doctor import references
from gpusetup.verify import pages as checks

ROOT = Path(__file__).resolve().parents[1]
GENERATED = {
    "reference/messages": messages.pages,
    references.PLACE: references.pages,
    "reference/checks": checks.pages,
}


def build(folder: Path) -> None:
    """Write everything into a folder."""
    shutil.copytree(ROOT / "docs", folder)
    for place, pages in GENERATED.items():
        (folder / place).mkdir(parents=True)
        for name, text in pages().items():
            (folder / place / name).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev docs", description="Build the documentation, as Markdown.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/docs", help="default: build/docs")
    folder = parser.parse_args(arguments).folder
    if folder.exists() and not (folder / "reference").is_dir() and any(folder.iterdir()):
        print(f"dev: {folder} holds something else; name an empty folder", file=sys.stderr)
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    build(folder)
    print(f"written to {folder}: {len(list(folder.rglob('*.md')))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
