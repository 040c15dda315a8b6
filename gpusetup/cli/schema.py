"""Print the JSON Schema of a document.

examples:
  gpusetup export schema                  the names of the documents
  gpusetup export schema stack            what `gpusetup resolve --format json` prints
  gpusetup export schema plan --out plan.schema.json
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run", "schema_of"]

_REFERENCES = "#/$defs/{name}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a document; without it, their names")
    parser.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    options.add_format(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Print the schema, or the names."""
    from gpusetup.model.documents import DOCUMENTS

    if arguments.name is None:
        output.write_answer(_names(arguments.format), arguments.out)
        return Exit.DONE
    name = arguments.name.removeprefix("gpusetup/").partition("/")[0]
    if name not in DOCUMENTS:
        near = difflib.get_close_matches(name, DOCUMENTS, n=3)
        raise BadInputError(
            "GS-136",
            f"no document is called {arguments.name!r}",
            path=arguments.name,
            hint=f"did you mean {', '.join(near)}?" if near else "`gpusetup export schema` lists them",
        )
    output.write_answer(output.json_text(schema_of(name)), arguments.out)
    return Exit.DONE


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document; one that has several forms is any of them."""
    import msgspec

    from gpusetup.model.documents import DOCUMENTS

    source, forms = DOCUMENTS[name]
    shapes, parts = msgspec.json.schema_components(forms, ref_template=_REFERENCES)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpusetup/{name}/1",
        "description": f"from: {source}",
        **(shapes[0] if len(shapes) == 1 else {"anyOf": list(shapes)}),
        "$defs": parts,
    }


def _names(form: str) -> str:
    from gpusetup.model.documents import DOCUMENTS, Documents

    if form == "json":
        return output.json_text(Documents(documents={name: source for name, (source, _) in DOCUMENTS.items()}))
    return output.table(("document", "from"), [(name, source) for name, (source, _) in DOCUMENTS.items()])
