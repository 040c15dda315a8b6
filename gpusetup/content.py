"""Where playbooks and roles are: relative to this package, never to the current directory."""

from __future__ import annotations

import os
from pathlib import Path

from gpusetup.errors import BadInputError

__all__ = ["content_path"]


def content_path() -> Path:
    """Return the folder that holds `playbooks/` and `roles/`: the override, the wheel's copy or the source tree."""
    override = os.environ.get("GPUSETUP_CONTENT")
    if override:
        folder = Path(override).absolute()
        if (folder / "playbooks").is_dir() and (folder / "roles").is_dir():
            return folder
        raise BadInputError(
            "GS-101",
            f"GPUSETUP_CONTENT names {folder}, which holds no playbooks and roles",
            hint="unset GPUSETUP_CONTENT, or point it at a folder with playbooks/ and roles/",
        )
    package = Path(__file__).resolve().parent
    for folder in (package / "_content", package.parent):
        if (folder / "playbooks").is_dir() and (folder / "roles").is_dir():
            return folder
    raise BadInputError(
        "GS-102",
        "the playbooks and roles that belong to gpusetup are missing",
        note=f"looked beside {package}",
        hint="install gpusetup again, or set GPUSETUP_CONTENT to a checkout",
    )
