"""Draw the pictures of README and CONTRIBUTING, and the benchmarks: `python -m tools.pictures`.

`docs/session.svg` shows the output of its commands, `docs/house.svg` the packages in the order of their imports;
`docs/peers.svg`, `docs/benchmarks` and their pages show the records of `./dev bench`. A test fails if one is stale.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

from bench import found, peers_told
from gpusetup.report.topology import element, text_at

ROOT = Path(__file__).resolve().parents[1]
SESSION = (
    ["matrix", "torch==2.6.*", "--gpu", "v100"],
    ["resolve", "torch==2.6.*", "--gpu", "v100", "--os", "ubuntu22.04", "--install", "pip"],
    ["why-not", "cuda=13.1", "--gpu", "v100"],
    ["doctor", "Failed to initialize NVML: Driver/library version mismatch"],
)
LINES = 60
"""The longest output that fits a picture."""
_COMMON = "text { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; }"
_HOUSE = """text { font: 13px system-ui, sans-serif; fill: #1f2328; } .name { font-weight: 600; font-size: 14px; }
.soft { fill: #59636e; } rect { fill: #f6f8fa; stroke: #d1d9e0; }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc; } .soft { fill: #9198a1; }
rect { fill: #151b23; stroke: #3d444d; } }"""


def session() -> str:
    """Return a picture of a terminal with the commands' current output."""
    from gpusetup.cli.main import main

    told: list[tuple[str, str]] = []
    for words in SESSION:
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(StringIO()):
            main(list(words))
        command = " ".join(f"'{word}'" if set(word) & set(" *") else word for word in words)
        told.append(("prompt", f"$ gpusetup {command}"))
        shown = said.getvalue().rstrip().splitlines()
        told += [("said", line) for line in shown] + [("said", "")]
    if len(told) > LINES:
        raise ValueError(f"the session has {len(told)} lines, a picture takes {LINES}: ask something shorter")
    width, height = 760, 52 + 18 * len(told)
    style = _COMMON + " .said { fill: #d4d4d8; } .prompt { fill: #86efac; font-weight: 600; }"
    parts = [element("style", style), element("rect", width=width, height=height, rx=10, fill="#18181b")]
    parts += [
        element("circle", cx=22 + 18 * number, cy=20, r=6, fill=colour)
        for number, colour in enumerate(("#f87171", "#fbbf24", "#4ade80"))
    ]
    parts += [text_at(18, 54 + 18 * row, line, kind, "start") for row, (kind, line) in enumerate(told) if line]
    return _svg(parts, width, height, "A session: " + "; ".join(line for kind, line in told if kind == "prompt"))


def house() -> str:
    """Return a picture of the packages; each may import those above it."""
    from tests.architecture.test_layers import LAYERS

    parts, y, width = [element("style", _HOUSE)], 12, 880
    parts.append(text_at(16, y + 18, "gpusetup/", "name", "start"))
    parts.append(text_at(110, y + 18, "the front-end; each imports only what stands above it", "soft", "start"))
    y += 32
    order = [name for row in LAYERS for name in row if not name.startswith("fleet.")]
    for name in order:
        y = _room(parts, y, width, name, _first_line(ROOT / "gpusetup" / name))
    parts.append(text_at(16, y + 18, "gpusetup_fleet/", "name", "start"))
    parts.append(
        text_at(150, y + 18, "installed when asked for; imports gpusetup, which never imports it", "soft", "start")
    )
    y += 32
    for name in (name.removeprefix("fleet.") for row in LAYERS for name in row if name.startswith("fleet.")):
        y = _room(parts, y, width, name, _first_line(ROOT / "gpusetup_fleet" / name))
    y += 10
    for name, what in OUTSIDE.items():
        y = _room(parts, y, width, name, what)
    return _svg(
        parts, width, y + 12, f"gpusetup in the order of imports: {', '.join(order)}; beside it {', '.join(OUTSIDE)}"
    )


OUTSIDE = {
    "plugins/": "what runs on hosts: modules and what they share; standard library only, Python 3.6",
    "roles/": "one for each thing that a person decides; they do exactly what they are told",
    "playbooks/": "one play each",
    "tests/": "unit/ and fleet/ mirror the two packages; data/ lints the matrix, lab/ and vm/ boot real hosts",
    "docs/": "guides, concepts, reference, decisions; the site is made of them",
    "tools/, bench/": "what writes generated pages, pictures and packages; benchmarks that print ratios",
}
"""Folders next to the package, which have no docstring."""


def _room(parts: list[str], y: int, width: int, name: str, what: str) -> int:
    lines = textwrap.wrap(what, 100)
    height = 12 + 18 * len(lines)
    parts.append(element("rect", x=12, y=y, width=width - 24, height=height, rx=6))
    parts.append(text_at(24, y + 19, name, "name", "start"))
    parts += [text_at(150, y + 19 + 18 * row, line, "said", "start") for row, line in enumerate(lines)]
    return y + height + 4


def _first_line(place: Path) -> str:
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def _svg(parts: list[str], width: int, height: int, label: str) -> str:
    box = f"0 0 {width} {height}"
    return element(
        "svg", "\n".join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=box, width=width, role="img",
        aria_label=label,
    ) + "\n"  # fmt: skip


def peers() -> str:
    """Return the bar chart of the recorded comparison."""
    return peers_told.picture(peers_told.recorded()) + "\n"


def peers_page() -> str:
    """Return the page with the bar chart."""
    return peers_told.page(peers_told.recorded())


def _bars(record: found.Record) -> str:
    return found.picture(record.found) + "\n"


PICTURES = {
    ROOT / "docs/session.svg": session,
    ROOT / "docs/house.svg": house,
    ROOT / "docs/peers.svg": peers,
    **{ROOT / f"docs/benchmarks/{record.name}.svg": partial(_bars, record) for record in found.records()},
}
PAGES = {
    ROOT / "docs/reference/peers.md": peers_page,
    ROOT / "docs/reference/benchmarks.md": lambda: found.page(found.records()),
}


def main() -> int:
    for path, drawn in {**PICTURES, **PAGES}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn(), encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
