"""What is wanted of each host: the command line, gpusetup.toml beside the inventory, the inventory's variables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.errors import BadInputError
from gpusetup.plan.settings import PREFIX, read_level, settings_for

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from gpusetup.drive.events import Track
    from gpusetup.model.request import Requirement
    from gpusetup.model.settings import Settings

__all__ = ["FILE_NAME", "add_wishes", "settings_of_hosts"]

FILE_NAME = "gpusetup.toml"


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """Add what is said for all hosts on the command line; inventory and gpusetup.toml win over it."""
    group = parser.add_argument_group("what is wanted (an inventory's gpusetup_ variables and gpusetup.toml win)")
    group.add_argument("--want", "-w", action="append", default=[], metavar="REQ", help="torch==2.6.*, 'cuda>=12.4', …")
    group.add_argument("--source", metavar="WHERE", help="nvidia, distro, the URL of a mirror or the path of a bundle")
    group.add_argument("--reboot", choices=("never", "when-needed", "schedule"), help="this machine: never by itself")
    group.add_argument("--replace", action="store_true", help="remove a driver of another origin, .run included")


def settings_of_hosts(arguments: argparse.Namespace, track: Track) -> dict[str, Settings]:
    """Return every host's wishes; a wrong or unknown setting is bad input before anything is done."""
    from gpusetup.resolve.requests import parse_requirements

    line: tuple[Requirement, ...] = parse_requirements(list(arguments.want))
    given: dict[str, Any] = {}
    for name in ("source", "reboot", "replace"):
        if value := getattr(arguments, name, None):
            given[name] = value
    base = {**read_level(given, "command line"), **_file_level(arguments.inventory)}
    settings = {}
    for name, host in track.hosts.items():
        if host.problem:
            raise BadInputError(
                "GS-315",
                f"{name}: a variable cannot be read: {host.problem}",
                path=name,
                hint=f"look at it with: ansible-inventory -i {arguments.inventory or 'INVENTORY'} --host {name}",
            )
        variables = {key: value for key, value in host.variables.items() if key.startswith(PREFIX)}
        settings[name] = settings_for(read_level(variables, name, prefix=PREFIX), base, line)
    return settings


def _file_level(inventory: str | None) -> dict[str, Any]:
    if inventory is None or "," in inventory:
        return {}
    place = Path(inventory)
    path = (place if place.is_dir() else place.parent) / FILE_NAME
    if not path.is_file():
        return {}
    return read_level(_toml(path), str(path))


def _toml(path: Path) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(
            "GS-316", f"{path} is no TOML: {error}", path=str(path), hint='write it as: torch = "2.6.*"'
        ) from error
    except OSError as error:
        raise BadInputError("GS-316", f"cannot read {path}: {error.strerror}", path=str(path)) from error
    return document
