"""The overlay inventory: a second inventory folder that gives every host the variables of its plan.

Ansible reads these files as templates, so text that a host or a person could have planted there is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.drive.names import check_host_name
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpusetup.model.variables import RoleVariables

__all__ = ["SELECTED", "check_host_name", "template_in", "write_local_inventory", "write_overlay"]

SELECTED = "gpusetup_selected"
"""The group to limit a playbook to: names in a pattern would be read as patterns."""

_FROM_INVENTORY = {
    "gpu_simulated_root": "{{ gpusetup_simulated_root | default('') }}",
    "gpu_proxy": "{{ gpusetup_proxy | default('') }}",
    "gpu_no_proxy": "{{ gpusetup_no_proxy | default([]) }}",
    "gpu_ca_file": "{{ gpusetup_ca_file | default('') }}",
}
"""What may hold a password or a vault value never leaves the inventory: the roles' variables name it there."""

_TEMPLATE = ("{{", "{%", "{#")


def template_in(value: Any, path: str = "") -> str:
    """Return the path of the first text that Ansible would take for a template, or nothing."""
    if isinstance(value, str):
        return path or "value" if any(mark in value for mark in _TEMPLATE) else ""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in pairs:
        if found := template_in(key, path) or template_in(item, f"{path}.{key}" if path else str(key)):
            return found
    return ""


def write_overlay(folder: Path, variables: Mapping[str, RoleVariables]) -> Path:
    """Write one JSON file per host below `host_vars`, readable by its owner alone, and the group SELECTED of them."""
    host_vars = folder / "host_vars"
    host_vars.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for host, told in variables.items():
        values = msgspec.to_builtins(told)
        if problem := check_host_name(host):
            raise BadInputError("GS-404", f"unsupported host name {host!r}", note=problem)
        if where := template_in(values):
            raise BadInputError(
                "GS-405", f"{host}: {where} contains template markers, which Ansible would execute", path=where
            )
        # A folder per host: with plain files, the one of a host `a` would also be read for a host `a.json`.
        (host_vars / host).mkdir(mode=0o700, exist_ok=True)
        _write(host_vars / host / "plan.json", values)
    hosts: dict[str, Any] = {host: {} for host in variables}
    _write(folder / "hosts.json", {"all": {"children": {SELECTED: {"hosts": hosts, "vars": _FROM_INVENTORY}}}})
    return folder


def write_local_inventory(folder: Path) -> Path:
    """Write an inventory of this machine alone, with the distribution's Python rather than one from somebody's PATH."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "local.json"
    variables = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    _write(path, {"all": {"hosts": {"localhost": variables}}})
    return path


def _write(path: Path, document: object) -> None:
    path.write_bytes(msgspec.json.encode(document))
    path.chmod(0o600)
