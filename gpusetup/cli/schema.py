"""Subcommands of `export`: the JSON Schema of a document, and the path of the Ansible collection."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from gpusetup.cli import options, output
from gpusetup.content import collections_path, content_path
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

_REFERENCES = "#/$defs/{name}"


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a document; without it, their names")
    parser.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    options.add_format(parser)


def run_schema(arguments: argparse.Namespace) -> Exit:
    """Print the JSON Schema of a document.

    examples:
      gpusetup export schema                  the names of the documents
      gpusetup export schema stack            what `gpusetup resolve --format json` prints
      gpusetup export schema plan --out plan.schema.json
    """
    from gpusetup.model.documents import documents

    if arguments.name is None:
        output.write_answer(_names(arguments.format), arguments.out)
        return Exit.DONE
    name = arguments.name.removeprefix("gpusetup/").partition("/")[0]
    if name not in documents():
        near = difflib.get_close_matches(name, documents(), n=3)
        raise BadInputError(
            "GS-136",
            f"no document is called {arguments.name!r}",
            path=arguments.name,
            hint=f"did you mean {', '.join(near)}?" if near else "`gpusetup export schema` lists them",
        )
    output.write_answer(output.json_text(schema_of(name)), arguments.out)
    return Exit.DONE


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document; several forms become `anyOf`."""
    import msgspec

    from gpusetup.model.documents import documents, forms_of

    shapes, parts = msgspec.json.schema_components(forms_of(name), ref_template=_REFERENCES)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpusetup/{name}/1",
        "description": f"from: {documents()[name]}",
        **(shapes[0] if len(shapes) == 1 else {"anyOf": list(shapes)}),
        "$defs": parts,
    }


def _names(form: str) -> str:
    from gpusetup.model.documents import Documents, documents

    if form == "json":
        return output.json_text(Documents(documents=documents()))
    return output.table(("document", "from"), list(documents().items()))


_PLACES = {"path": content_path, "collections": collections_path}


def add_content_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "what",
        choices=_PLACES,
        help="path: the folder with playbooks/, roles/ and plugins/; collections: what ANSIBLE_COLLECTIONS_PATH wants",
    )
    options.add_output(parser)


def run_content(arguments: argparse.Namespace) -> Exit:
    """Print where the Ansible collection is, for ansible-playbook.

    examples:
      export ANSIBLE_COLLECTIONS_PATH="$(gpusetup export content collections)"
      ansible-playbook -i inventory.ini -e @vars.json gpusetup.stack.apply
    """
    folder = str(_PLACES[arguments.what]())
    if arguments.format == "json":
        from gpusetup.model.documents import ContentPlace

        folder = output.json_text(ContentPlace(path=folder))
    output.write_answer(folder, arguments.out)
    return Exit.DONE
