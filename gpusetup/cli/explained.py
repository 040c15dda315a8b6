"""`--explain NAME`: the page that the program writes about a check or a cause, on the terminal."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

__all__ = ["explain"]


def explain(arguments: argparse.Namespace, pages: Mapping[str, Callable[[], str]], what: str, reference: str) -> Exit:
    """Print the page that was asked for; a name that nothing has is refused with those that are near."""
    name = arguments.explain
    if arguments.format != "text":
        raise BadInputError(reference, f"--explain has only text output, not {arguments.format}", path="--format")
    if name not in pages:
        close = difflib.get_close_matches(name.lower(), pages, n=3, cutoff=0.4)
        raise BadInputError(
            reference,
            f"there is no {what} {name!r}",
            path="--explain",
            hint=f"did you mean {', '.join(close)}?" if close else f"there are: {', '.join(sorted(pages)[:8])}, …",
        )
    output.write_answer(pages[name](), arguments.out)
    return Exit.DONE
