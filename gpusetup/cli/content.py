"""Print where the Ansible collection is, for ansible-playbook.

examples:
  export ANSIBLE_COLLECTIONS_PATH="$(gpusetup export content collections)"
  ansible-playbook -i inventory.ini -e @vars.json gpusetup.stack.apply
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli.options import add_output
from gpusetup.cli.output import json_text, write_answer
from gpusetup.content import collections_path, content_path
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]

_PLACES = {"path": content_path, "collections": collections_path}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "what",
        choices=_PLACES,
        help="path: the folder with playbooks/, roles/ and plugins/; collections: what ANSIBLE_COLLECTIONS_PATH wants",
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Print the folder."""
    folder = str(_PLACES[arguments.what]())
    if arguments.format == "json":
        from gpusetup.model.documents import ContentPlace

        folder = json_text(ContentPlace(path=folder))
    write_answer(folder, arguments.out)
    return Exit.DONE
