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
_PACKAGED = Path("/usr/lib/gpusetup")
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


def installation() -> str:
    """Return how gpusetup was installed, judged by the files that each way leaves."""
    prefix, root = Path(sys.prefix), Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file() and (root / "roles").is_dir():
        return "checkout"
    if prefix == _PACKAGED:
        return _distribution(Path("/var/lib"))
    if prefix.name.startswith("single-") and prefix.parent.name == "gpusetup":
        return "single file"
    if (prefix / "pipx_metadata.json").is_file() or "pipx" in prefix.parts:
        return "pipx"
    if (prefix / "uv-receipt.toml").is_file() or _made_by_uv(prefix):
        return "uv"
    return "virtual environment" if sys.prefix != sys.base_prefix else "system"


def _distribution(state: Path) -> str:
    if (state / "dpkg/info/gpusetup.list").is_file():
        return "deb"
    return "rpm" if (state / "rpm").is_dir() or Path("/usr/lib/sysimage/rpm").is_dir() else "package"


def _made_by_uv(prefix: Path) -> bool:
    try:
        return any(
            line.startswith("uv =") for line in (prefix / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
        )
    except OSError:
        return False


def how_to_install(package: str) -> str:
    """Return how a Python package comes into this gpusetup, by the way in which gpusetup was installed."""
    from importlib.util import find_spec
    from shlex import quote

    kind, python, named = installation(), quote(sys.executable), quote(package)
    if kind == "single file":
        return f"unpack the single file again: rm -r {quote(sys.prefix)}, then run the same command"
    if kind in ("deb", "rpm"):
        return "install it: " + ("apt-get install --reinstall" if kind == "deb" else "dnf reinstall") + " gpusetup"
    if kind == "pipx":
        return f"install it: pipx inject gpusetup {named}"
    if (Path(sys.prefix) / "uv-receipt.toml").is_file():
        return f"install it: uv tool install gpusetup --with {named}"
    if find_spec("pip") is None:
        return f"install it: uv pip install --python {python} {named}"
    return f"install it: {python} -m pip install {named}"
