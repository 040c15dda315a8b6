"""`--explain NAME`: the page that the program writes about a check or a cause, on the terminal."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal

from gpusetup.cli import output
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

__all__ = ["explain"]


def explain(
    arguments: argparse.Namespace,
    pages: Mapping[str, Callable[[], str]],
    what: Literal["check", "cause"],
    reference: str,
) -> Exit:
    """Print the page that was asked for; a name that nothing has is refused with those that are near."""
    name = arguments.explain
    if arguments.format not in {"text", "json"}:
        raise BadInputError(reference, f"--explain answers as text or json, not {arguments.format}", path="--format")
    if name not in pages:
        close = difflib.get_close_matches(name.lower(), pages, n=3, cutoff=0.4)
        raise BadInputError(
            reference,
            f"there is no {what} {name!r}",
            path="--explain",
            hint=f"did you mean {', '.join(close)}?" if close else f"there are: {', '.join(sorted(pages)[:8])}, …",
        )
    text = pages[name]()
    if arguments.format == "json":
        from gpusetup.model.documents import Explained

        text = output.json_text(Explained(kind=what, name=name, page=text))
    output.write_answer(text, arguments.out)
    return Exit.DONE
