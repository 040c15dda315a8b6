"""Pack standalone programs for hosts: the files of a role, and the parts of the collection that they import.

Such a program imports shared code under the collection's name. On a host it is installed in one folder together with
just these files, so the same import works there, without Ansible and in any Python.
"""

from __future__ import annotations

import ast
import base64
import io
import os
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INSIDE = "ansible_collections/gpusetup/stack"


def texts(role: str, *entries: str) -> dict[str, str]:
    """Return a role's program as {path in the program's folder: text}.

    `entries` are the files of the role where the program starts; without them it includes all of the role's files.
    """
    files = os.path.join(COLLECTION, "roles", role, "files")
    found: dict[str, str] = {}
    left = list(entries) or sorted(_all(files))
    while left:
        place = left.pop()
        if place in found:
            continue
        with open(_file(files, place), encoding="utf-8") as stream:
            found[place] = stream.read()
        if place.endswith(".py"):
            names = {name.replace(".", "/") for name in _imported(place, found[place])}
            wanted = {path for name in names for path in (name + ".py", name + "/__init__.py")}
            left += sorted(path for path in wanted - found.keys() if os.path.isfile(_file(files, path)))
    return dict(sorted({**_packages(found), **found}.items()))


def packed(role: str, *entries: str) -> str:
    """Return the same as a module's argument; `gpu_host.params` unpacks it."""
    return archive({place: text.encode() for place, text in texts(role, *entries).items()})


def archive(files: dict[str, bytes]) -> str:
    """Return files as a base64 zip archive, identical for identical files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in files.items():
            target.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # ZipInfo: without the current time
    return base64.b64encode(packed.getvalue()).decode("ascii")


def _all(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.endswith(".pyc"):
                yield os.path.relpath(os.path.join(here, name), folder)


def _file(files: str, place: str) -> str:
    """Return the source of a program's file: in the role, or in the collection's shared code."""
    if place.startswith(INSIDE + "/"):
        return os.path.join(COLLECTION, place[len(INSIDE) + 1 :])
    return os.path.join(files, place)


def _imported(place: str, text: str) -> Iterator[str]:
    """Yield the full names of modules, and of names in them, that a file imports."""
    package = place.split("/")[:-1]
    for node in ast.walk(ast.parse(text, place)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _packages(found: dict[str, str]) -> dict[str, str]:
    """Return the __init__.py files that make the collection's folders packages, so that they precede installed ones."""
    inside = [place.split("/")[:-1] for place in found if place.startswith(INSIDE + "/")]
    return {"/".join([*parts[:end], "__init__.py"]): "" for parts in inside for end in range(1, len(parts) + 1)}
