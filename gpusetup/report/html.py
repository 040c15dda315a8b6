"""The report as one HTML file: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.report.model import GRAVITY
from gpusetup.report.svg import curves_svg, grid_svg
from gpusetup.report.text import WORDS
from gpusetup.report.words import counted, duration, figure

if TYPE_CHECKING:
    from jinja2 import Template

    from gpusetup.model.verdict import Curves, Grid, Result
    from gpusetup.report.model import Report

__all__ = ["to_html"]


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _drawn(found: Grid | Curves) -> str:
    from markupsafe import Markup

    from gpusetup.model.verdict import Grid

    drawing = grid_svg(found) if isinstance(found, Grid) else curves_svg(found)
    return Markup(drawing)  # noqa: S704 - every text in it went through html.escape


def _ordered(results: tuple[Result, ...]) -> list[Result]:
    return sorted(results, key=lambda result: GRAVITY.index(result.verdict))


def to_html(report: Report) -> str:
    """Return the page."""
    return _template().render(
        report=report, words=WORDS, counted=counted, duration=duration, figure=figure, drawn=_drawn, ordered=_ordered
    )
