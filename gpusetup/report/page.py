"""Pages as one HTML file: no script, no font, no picture from elsewhere; all of them in one frame and one style."""

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
    """Return a page of a kind, such as `plan`; what is put into it is escaped. `told` stands below the title."""
    meta = " · ".join([made, *told, f"gpusetup {__version__}"])
    return _environment().get_template(f"{name}.html.j2").render(title=title, meta=meta, **fields)


def stamp(made: datetime) -> str:
    """Return a time as pages tell it."""
    return made.strftime("%Y-%m-%dT%H:%M:%SZ")


def visible(text: str, but: str = "") -> str:
    """Return a text with its control characters, and those that turn the direction of writing, as their numbers."""
    if text.isprintable():
        return text
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(
        f"\\u{ord(one):04x}" if one not in but and unicodedata.category(one) in hidden else one for one in text
    )


def _finalized(value: Any) -> Any:
    """Show what hosts and people wrote as it is; what is HTML already stays."""
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
