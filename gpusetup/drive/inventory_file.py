"""Check that an inventory file is text that Ansible can read in seconds; executable inventories are not checked."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

_MOST_NODES = 5_000_000
"""Hosts, groups and values together; more than any fleet has."""
_ALIAS = re.compile(rb"[\s\[,]\*[A-Za-z0-9_-]")
_MANY_ALIASES = 8


def examine(path: Path) -> None:
    """Raise if a file is not UTF-8 text, or a YAML file whose aliases expand to millions of values."""
    if not path.is_file() or os.access(path, os.X_OK):
        return
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}", "check its owner and mode: ls -l") from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise _refused(path, f"is no text: byte {error.start} is no UTF-8", "save it as UTF-8 text") from error
    if "\0" in text:
        raise _refused(path, f"is no text: byte {content.index(0)} is zero", "save it as UTF-8 text")
    if len(_ALIAS.findall(content)) >= _MANY_ALIASES and _unfolded(text) > _MOST_NODES:
        raise _refused(path, "has YAML aliases of aliases that unfold to millions of values", "write the values once")


def _refused(path: Path, what: str, hint: str) -> BadInputError:
    return BadInputError("GS-406", f"the inventory {what}", path=str(path), hint=hint)


def _unfolded(text: str) -> int:
    """Return the number of values of a YAML text with all aliases expanded; 0 if it is not YAML."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 0
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1  # an alias inside its own anchor counts as one
            parts = node.value if isinstance(node.value, list) else []
            inner = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
            sizes[id(node)] = 1 + sum(map(size, inner))
        return sizes[id(node)]

    return size(root) if root is not None else 0
