"""Print where the playbooks and roles are, for people who use them with ansible-playbook.

examples:
  ansible-playbook -i inventory.ini -e @vars.json "$(gpusetup content path)/playbooks/apply.yml"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli.options import add_output
from gpusetup.cli.output import json_text, write_answer
from gpusetup.content import content_path
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", choices=("path",), help="the folder that holds playbooks/ and roles/")
    add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Print the folder."""
    folder = str(content_path())
    document = {"schema": "gpusetup/content/1", "ok": True, "path": folder}
    write_answer(json_text(document) if arguments.format == "json" else folder, arguments.out)
    return Exit.DONE
