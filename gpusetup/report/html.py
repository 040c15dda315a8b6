"""Render HTML pages in one layout, the report's among them: single files without scripts, external fonts, images."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from gpusetup import __version__
from gpusetup.model import visible
from gpusetup.model.verdict import Grid
from gpusetup.report.model import BLAME, GRAVITY, WORDS, counted, duration, figure
from gpusetup.report.topology import curves_svg, grid_svg, picture
from gpusetup.verify.pages import page as page_of
from gpusetup.verify.registry import checks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from jinja2 import Environment

    from gpusetup.model.verdict import Curves, Result
    from gpusetup.report.model import Report


def page(name: str, *, title: str, made: str, told: Iterable[str] = (), **fields: Any) -> str:
    """Render a page template such as `plan`; fields are escaped. `told` goes below the title."""
    meta = " · ".join([made, *told, f"gpusetup {__version__}"])
    return _environment().get_template(f"{name}.html.j2").render(title=title, meta=meta, **fields)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=lambda value: visible(value, "\n\t") if type(value) is str else value,  # leaves HTML unchanged
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def _drawn(found: Grid | Curves) -> str:
    drawing = grid_svg(found) if isinstance(found, Grid) else curves_svg(found)
    return Markup(drawing)  # noqa: S704 - every text in it went through html.escape


def _ordered(results: tuple[Result, ...]) -> list[Result]:
    return sorted(results, key=lambda result: GRAVITY.index(result.verdict))


def _pages(report: Report) -> dict[str, str]:
    grave = {result.id for host in report.hosts for result in host.results if result.verdict in ("fail", "warn")}
    return {check.id: Markup(_markup(page_of(check))) for check in checks() if check.id in grave}  # noqa: S704 - escaped


def _markup(text: str) -> str:
    """Convert a check's page to HTML; it is Markdown with only paragraphs and tables."""
    title, *parts = [part for part in text.split("\n\n") if part.strip()]
    return f"<h3>{_inline(title.removeprefix('# '))}</h3>" + "".join(map(_part, parts))


def _part(text: str) -> str:
    if not text.startswith("|"):
        return f"<p>{_inline(text)}</p>"
    rows = [line.strip("| ").split(" | ") for line in text.strip().splitlines() if set(line) - set("|-")]
    cells = ["".join(f"<td>{_inline(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _inline(text: str) -> str:
    escaped = escape(text.strip(), quote=False)
    return _CODE.sub(r"<code>\1</code>", _LINK.sub(r"\1", escaped))


def to_html(report: Report) -> str:
    """Return the report as an HTML page."""
    level = [f"level {report.level}"] if report.level else []
    return page(
        "report",
        title=report.title,
        made=report.started,
        told=[*level, duration(report.seconds)],
        report=report,
        picture=picture,
        words=WORDS,
        blame=BLAME,
        counted=counted,
        duration=duration,
        figure=figure,
        drawn=_drawn,
        ordered=_ordered,
        pages=_pages(report),
    )
