"""Find the Ansible collection relative to this package, never to the current directory.

The wheel contains it in the layout that Ansible expects. In a checkout the repository itself is the collection, and a
link below `.collections` provides that layout.
"""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from gpusetup.errors import BadInputError

COLLECTION = "gpusetup.stack"
_HOST_CODE = "gpusetup_host_code"
_INSIDE = Path("ansible_collections", *COLLECTION.split("."))


def content_path() -> Path:
    """Return the folder of the collection, which holds `playbooks/`, `roles/` and `plugins/`."""
    return collections_path() / _INSIDE


def collections_path() -> Path:
    """Return Ansible's collections path: GPUSETUP_CONTENT, the wheel's copy or the source tree's link."""
    override = os.environ.get("GPUSETUP_CONTENT")
    if override:
        named = Path(override).absolute()
        for folder in (named, named / ".collections"):
            if _whole(folder):
                return folder
        raise BadInputError(
            "GS-101",
            f"GPUSETUP_CONTENT names {named}, which does not contain the collection {COLLECTION}",
            hint=f"unset GPUSETUP_CONTENT, or set it to a checkout or a folder with {_INSIDE}",
        )
    package = Path(__file__).resolve().parent
    for folder in (package / "_content", package.parent / ".collections"):
        if _whole(folder):
            return folder
    raise BadInputError("GS-102", "gpusetup's playbooks and roles are missing", note=f"looked beside {package}")


def host_code(name: str) -> ModuleType | Any:
    """Import a module of the collection (`gpu_judge.versions`) from the file that hosts or Ansible run."""
    import importlib

    if _HOST_CODE not in sys.modules:
        from types import ModuleType

        package = ModuleType(_HOST_CODE)
        folders = ("plugins/module_utils", "plugins/plugin_utils", "roles/gpu_verify/files")
        package.__path__ = [str(content_path() / folder) for folder in folders]
        sys.modules[_HOST_CODE] = package
    return importlib.import_module(f"{_HOST_CODE}.{name}")


def _whole(folder: Path) -> bool:
    return all((folder / _INSIDE / part).is_dir() for part in ("playbooks", "roles", "plugins"))
