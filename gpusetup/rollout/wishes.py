"""What is wanted of each host: the command line, gpusetup.toml beside the inventory, the inventory's variables."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.plan.settings import PREFIX, overruled, read_level, settings_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.drive.events import Track
    from gpusetup.model.settings import Settings
    from gpusetup.rollout.options import Wishes

FILE_NAME = "gpusetup.toml"


def settings_of_hosts(
    wishes: Wishes, inventory: str | None, track: Track
) -> tuple[dict[str, Settings], dict[str, tuple[str, ...]]]:
    """Return every host's wishes, and which of the command line's have no effect on it.

    A wrong or unknown setting is bad input before anything is done.
    """
    names = ("source", "reboot", "replace", "no_way_back", "older_source", "upgrade", "allow_vulnerable")
    said = {name: getattr(wishes, name) for name in names}
    line = read_level({name: value for name, value in said.items() if value}, "command line")
    file = _file_level(inventory)
    settings, lost = {}, {}
    for name, host in track.hosts.items():
        if host.problem:
            raise BadInputError(
                "GS-315",
                f"{name}: cannot read a variable: {host.problem}",
                path=name,
                hint=f"check it with: ansible-inventory -i {inventory or 'INVENTORY'} --host {name}",
            )
        variables = {key: value for key, value in host.variables.items() if key.startswith(PREFIX)}
        own = read_level(variables, name, prefix=PREFIX)
        settings[name] = _with_token(settings_for(own, file, line, wishes.requirements))
        lost[name] = overruled(own, file, wishes.requirements, settings[name])
    return settings, lost


def _with_token(settings: Settings) -> Settings:
    """Return the settings with the digest of the vGPU's token: the plan asks for no more of it."""
    if not settings.vgpu_token:
        return settings
    try:
        digest = hashlib.sha256(Path(settings.vgpu_token).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInputError(
            "GS-433",
            f"cannot read the vGPU token {settings.vgpu_token}: {error.strerror}",
            path="gpusetup_vgpu_token",
            hint="give the path of the client configuration token on this machine, the one that runs gpusetup",
        ) from error
    return msgspec.structs.replace(settings, vgpu_token_sha256=digest)


def _file_level(inventory: str | None) -> dict[str, Any]:
    if inventory is None or "," in inventory:
        return {}
    place = Path(inventory)
    path = (place if place.is_dir() else place.parent) / FILE_NAME
    if not path.is_file():
        return {}
    return read_level(read_toml(path), str(path))


def read_toml(path: Path) -> Mapping[str, Any]:
    """Read a file of settings."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(
            "GS-316", f"{path} is not valid TOML: {error}", path=str(path), hint='write it as: torch = "2.6.*"'
        ) from error
    except OSError as error:
        raise BadInputError("GS-316", f"cannot read {path}: {error.strerror}", path=str(path)) from error
    return document
