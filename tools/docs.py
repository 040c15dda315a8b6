"""Build the documentation: hand-written pages, and pages generated from the program.

./dev docs [FOLDER]     rebuilds FOLDER, by default build/docs
./dev docs --llms       rewrites docs/llms.txt, the list of pages for language models, each with its first sentence
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from gpusetup.doctor.catalogue import PAGES
from gpusetup.doctor.references import PLACE
from tools import check_pages, doctor_pages, units

ROOT = Path(__file__).resolve().parents[1]
GENERATED = {
    PAGES: doctor_pages.causes,
    PLACE: doctor_pages.errors,
    "reference/checks": check_pages.pages,
    "reference/services": units.pages,
}


LLMS = ROOT / "docs/llms.txt"
PARTS = {"guides": "Guides", "concepts": "Concepts", "reference": "Reference", "decisions": "Decisions"}


def llms() -> str:
    """Return the list of the pages, in the form of https://llmstxt.org."""
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = ["# gpusetup", "", f"> {_first_sentence(front)}"]
    for folder, title in PARTS.items():
        lines += ["", f"## {title}", ""]
        for path in sorted((ROOT / "docs" / folder).glob("*.md")):
            text = path.read_text(encoding="utf-8")
            heading = text.partition("\n")[0].lstrip("# ")
            lines.append(f"- [{heading}]({folder}/{path.name}): {_first_sentence(text)}".removesuffix(": "))
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    """Return a page's first sentence outside headings, code, tables, lists and pictures, with links as plain text."""
    prose = re.sub(r"```.*?```|<[^>]*>", "", text, flags=re.DOTALL)
    found = (part for part in re.split(r"\n\s*\n", prose) if re.match(r"\s*[A-Za-z`\"*]", part))
    words = " ".join(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", next(found, "")).split())
    return re.split(r"(?<=[.!?:]) (?=[A-Z`])", words)[0].rstrip(":")


def build(folder: Path) -> None:
    """Build everything into a folder."""
    shutil.copytree(ROOT / "docs", folder)
    for place, pages in GENERATED.items():
        (folder / place).mkdir(parents=True)
        for name, text in pages().items():
            (folder / place / name).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev docs", description="Build the documentation, as Markdown.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/docs", help="default: build/docs")
    parser.add_argument("--llms", action="store_true", help="write docs/llms.txt anew instead")
    told = parser.parse_args(arguments)
    if told.llms:
        LLMS.write_text(llms(), encoding="utf-8")
        return 0
    folder = told.folder
    if folder.exists() and not (folder / "reference").is_dir() and any(folder.iterdir()):
        print(f"dev: {folder} holds something else; name an empty folder", file=sys.stderr)
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    build(folder)
    print(f"written to {folder}: {len(list(folder.rglob('*.md')))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
