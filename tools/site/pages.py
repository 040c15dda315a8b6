"""The pages of the site: the built documentation, generated pages, and links to each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from gpusetup.cli.commands import COMMANDS
from gpusetup.cli.main import command_parser, main
from gpusetup.model.request import DEFAULT_COMPONENTS
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.resolve.tables import TABLES
from tools import docs, role_pages

ROOT = Path(__file__).resolve().parents[2]
BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "tests/fixtures/doctor/SCORES.md": "reference/doctor-scores.md",
    **{
        f"roles/{page.parent.name}/README.md": f"reference/roles/{page.parent.name}.md"
        for page in role_pages.pages()
        if page.name == "README.md"
    },
}
"""Documents outside docs → their path on the site."""
NUMEROUS = ("decisions", "reference/commands", "reference/errors", "reference/matrix", "reference/messages")
"""Folders whose pages are not in the list of every page, since they are too many."""
_LINK = re.compile(r"(?<=\]\()(?P<to>[^)#\s:]*)(?P<part>#[^)\s]*)?(?=\))")


def write(folder: Path, *, versions: bool = False) -> None:
    """Write every page as Markdown into a new folder; add a note if it is one of several versions."""
    docs.build(folder)
    (folder / docs.LLMS.name).write_text(docs.llms().replace(".md)", ".html)"), encoding="utf-8")
    places = {ROOT / name: place for name, place in BESIDE.items()}
    written = {path: path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    places |= {ROOT / "docs" / place: place for place in written.values()}
    for original, place in places.items():
        page = folder / place
        page.parent.mkdir(exist_ok=True)
        text = (page if page.exists() else original).read_text(encoding="utf-8")
        page.write_text(relinked(text, original, place, places), encoding="utf-8")
    _commands(folder / "reference/commands")
    _tables(folder / "reference/matrix")
    for listed in sorted(
        {page.parent for page in folder.rglob("*.md")} - {folder}, reverse=True
    ):  # what is below first
        _lead(listed, folder)
    _lead_from_home(folder)
    if versions:
        home = folder / "index.md"
        link = '<a href="../index.html">Other versions of this site</a>\n'
        home.write_text(f"{home.read_text(encoding='utf-8')}\n{link}", encoding="utf-8")


def relinked(text: str, original: Path, place: str, places: dict[Path, str]) -> str:
    """Return a page with its links changed for the site; `original`: its path in the checkout."""

    def moved(match: re.Match[str]) -> str:
        if not match["to"]:
            return match[0]
        target = (original.parent / match["to"]).resolve()
        if target.is_dir() and target.is_relative_to(ROOT / "docs"):
            to = f"{target.relative_to(ROOT / 'docs').as_posix()}/README.md"
        elif target in places:
            to = places[target]
        elif target.is_file() and target.is_relative_to(ROOT / "docs"):
            to = target.relative_to(ROOT / "docs").as_posix()
        else:
            return match[0]
        up = "../" * place.count("/")
        return f"{up}{to}{match['part'] or ''}"

    return _LINK.sub(moved, text)


def _commands(folder: Path) -> None:
    folder.mkdir()
    lines = ["# Commands", ""]
    for name, (_, summary) in COMMANDS.items():
        page = f"{name.replace(' ', '-')}.md"
        text = f"# gpusetup {name}\n\n{summary}\n\n```text\n{command_parser(name).format_help(whole=True)}```\n"
        (folder / page).write_text(text, encoding="utf-8")
        lines.append(f"- [gpusetup {name}]({page}): {summary}")
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


_OF_A_MACHINE = {"variants": ["--gpu", "h100", "--driver", "580.95.05"]}
"""Tables that need a machine, with an example."""


def _tables(folder: Path) -> None:
    folder.mkdir()
    for name in dict.fromkeys((*FRAMEWORKS, *DEFAULT_COMPONENTS, *TABLES)):
        page = folder / f"{name}.md"
        said = StringIO()
        with redirect_stderr(said):
            about = _OF_A_MACHINE.get(name, [])
            code = main(["matrix", name, *about, "--format", "md", "--out", str(page)])
        if code != 0:
            raise RuntimeError(f"gpusetup matrix {name}: {said.getvalue()}")
        rows = page.read_text(encoding="utf-8")
        page.write_text(f"# gpusetup {' '.join(('matrix', name, *about))}\n\n{rows}", encoding="utf-8")


def _lead(folder: Path, root: Path) -> None:
    """Write a folder's index page with links to all others in it; keep the text of an existing one."""
    place = folder.relative_to(root).as_posix()
    readme = folder / "README.md"
    pages = sorted(page for page in folder.glob("*.md") if page != readme)
    below = sorted(page.parent.name for page in folder.glob("*/README.md"))
    title = docs.PARTS.get(place, folder.name.capitalize())
    text = readme.read_text(encoding="utf-8") if readme.exists() else f"# {title}\n"
    if place in NUMEROUS:
        for page in pages:
            page.write_text(f"---\norphan: true\n---\n{page.read_text(encoding='utf-8')}", encoding="utf-8")
        if not all(f"({page.name})" in text for page in pages):
            text += "\n" + "".join(f"- [{_title(page)}]({page.name})\n" for page in pages)
    else:
        shown = "" if any(f"({page.name})" in text for page in pages) else "\n:maxdepth: 1"
        text += _toctree([*(f"{name}/README" for name in below), *(page.stem for page in pages)], hidden=not shown)
    readme.write_text(text, encoding="utf-8")


def _lead_from_home(folder: Path) -> None:
    home = folder / "index.md"
    explorer = '<p><a href="explorer/index.html">Which driver and CUDA for your GPU? Ask here.</a></p>'
    names = [f"{name}/README" for name in docs.PARTS] + [
        Path(place).stem for place in BESIDE.values() if "/" not in place
    ]
    text = home.read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    text = f"{title}\n\n{explorer}\n{rest}"
    home.write_text(text + _toctree([name for name in names if name != home.stem], hidden=True), encoding="utf-8")


def _toctree(names: list[str], *, hidden: bool) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:" if hidden else ":maxdepth: 1", "", *names, "```", ""])


def _title(page: Path) -> str:
    return next(_headings(page), page.stem)


def _headings(page: Path) -> Iterator[str]:
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            yield line.removeprefix("# ")
