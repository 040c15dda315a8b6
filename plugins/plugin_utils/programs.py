"""Programs that run on hosts by themselves: the files of a role, and what they refer to of the collection.

Such a program imports what it shares with the modules by the collection's own name. On a host it lies in one folder
with just these files, so that the same import works there, without Ansible and in any Python.
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
    """Return what a role's program consists of: places in the program's folder → texts.

    `entries` are files of the role where the program begins; without them all of the role's files belong to it.
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
    """Return the same as a module's argument; `gpu_host.programs` takes it apart."""
    return archive({place: text.encode() for place, text in texts(role, *entries).items()})


def archive(files: dict[str, bytes]) -> str:
    """Return files as an argument, the same for the same files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in files.items():
            target.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # ZipInfo has no time of today
    return base64.b64encode(packed.getvalue()).decode("ascii")


def _all(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.endswith(".pyc"):
                yield os.path.relpath(os.path.join(here, name), folder)


def _file(files: str, place: str) -> str:
    """Return where a file of a program comes from: out of the role, or of what the collection's modules share."""
    if place.startswith(INSIDE + "/"):
        return os.path.join(COLLECTION, place[len(INSIDE) + 1 :])
    return os.path.join(files, place)


def _imported(place: str, text: str) -> Iterator[str]:
    """Return the full names that a file may import, of modules and of what is in them."""
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
    """Return what makes packages of the collection's folders: one that is installed there is not to be found first."""
    inside = [place.split("/")[:-1] for place in found if place.startswith(INSIDE + "/")]
    return {"/".join([*parts[:end], "__init__.py"]): "" for parts in inside for end in range(1, len(parts) + 1)}
