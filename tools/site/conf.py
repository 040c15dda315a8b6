"""Sphinx's configuration. No fonts or scripts from other sites: the site must work without a network."""

from __future__ import annotations

import gc
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.search.en import SearchEnglish

from gpusetup import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "gpusetup"
version = release = __version__
html_title = f"gpusetup {__version__}"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
templates_path: list[str] = []
html_use_index = False
suppress_warnings = ["misc.highlighting_failure"]  # examples leave parts out with …
html_show_search_summary = False  # it is fetched, which a page that was opened from a folder may not do


gc.set_threshold(200_000, 20, 100)  # a build makes trees of many million objects and lets go of few


class _English(SearchEnglish):
    """English search with a cache for word stems."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.stem = cache(super().stem)


_LISTS: dict[tuple[Any, ...], str] = {}


def _list_of_pages_once(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Render the list of pages once for all pages of a folder that are not in it, since it is the same."""
    draw = context.get("toctree")
    if draw is None or "orphan" not in (context.get("meta") or {}):
        return

    def drawn(**options: Any) -> str:
        key = (page.rpartition("/")[0], *sorted(options.items()))
        if key not in _LISTS:
            _LISTS[key] = draw(**options)
        return _LISTS[key]

    context["toctree"] = drawn


def _reached_by_keyboard(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Make elements that are wider than the screen scrollable by keyboard."""
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def _drawers_with_names(app: Sphinx, failure: Exception | None) -> None:
    """Label the list of pages for screen readers, since a page has two asides."""
    for page in () if failure else Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(
            text.replace('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
            encoding="utf-8",
        )


def setup(app: Sphinx) -> None:
    app.add_search_language(_English)
    app.connect("html-page-context", _list_of_pages_once, priority=100)  # before the theme asks for the list
    app.connect("html-page-context", _reached_by_keyboard)
    app.connect("build-finished", _drawers_with_names)
