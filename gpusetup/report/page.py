"""Render HTML pages in one shared layout, each a single file without scripts and external fonts or images."""

from __future__ import annotations

import unicodedata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Any

    from jinja2 import Environment


def page(name: str, *, title: str, made: str, told: Iterable[str] = (), **fields: Any) -> str:
    """Render a page template such as `plan`; fields are escaped. `told` goes below the title."""
    meta = " · ".join([made, *told, f"gpusetup {__version__}"])
    return _environment().get_template(f"{name}.html.j2").render(title=title, meta=meta, **fields)


def stamp(made: datetime) -> str:
    """Return a time in the format of the pages."""
    return made.strftime("%Y-%m-%dT%H:%M:%SZ")


def visible(text: str, but: str = "") -> str:
    """Return a text with control and text-direction characters, except those in `but`, as code points."""
    if text.isprintable():
        return text
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(
        f"\\u{ord(one):04x}" if one not in but and unicodedata.category(one) in hidden else one for one in text
    )


def _finalized(value: Any) -> Any:
    """Make hidden characters in plain text visible; leave HTML unchanged."""
    return visible(value, "\n\t") if type(value) is str else value


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
