"""The overlay inventory: a second inventory folder with the plan's variables for each host.

Ansible evaluates templates in these files, so values that contain template markers are refused.
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
"""The group that playbooks are limited to: host names could be read as patterns."""

_FROM_INVENTORY = {
    "gpu_simulated_root": "{{ gpusetup_simulated_root | default('') }}",
    "gpu_proxy": "{{ gpusetup_proxy | default('') }}",
    "gpu_no_proxy": "{{ gpusetup_no_proxy | default([]) }}",
    "gpu_ca_file": "{{ gpusetup_ca_file | default('') }}",
}
"""Variables that may hold secrets: the roles refer to the inventory, so that the values are not copied."""

_TEMPLATE = ("{{", "{%", "{#")


def template_in(value: Any, path: str = "") -> str:
    """Return the path of the first string with template markers, or an empty string."""
    if isinstance(value, str):
        return path or "value" if any(mark in value for mark in _TEMPLATE) else ""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in pairs:
        if found := template_in(key, path) or template_in(item, f"{path}.{key}" if path else str(key)):
            return found
    return ""


def write_overlay(folder: Path, variables: Mapping[str, RoleVariables]) -> Path:
    """Write a private JSON file per host below `host_vars`, and the group SELECTED of these hosts."""
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
        # A folder per host: a plain file of host `a.json` would also be read for host `a`.
        (host_vars / host).mkdir(mode=0o700, exist_ok=True)
        _write(host_vars / host / "plan.json", values)
    hosts: dict[str, Any] = {host: {} for host in variables}
    _write(folder / "hosts.json", {"all": {"children": {SELECTED: {"hosts": hosts, "vars": _FROM_INVENTORY}}}})
    return folder


def write_local_inventory(folder: Path) -> Path:
    """Write an inventory of this machine only, with the distribution's Python instead of the first one on PATH."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "local.json"
    variables = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    _write(path, {"all": {"hosts": {"localhost": variables}}})
    return path


def _write(path: Path, document: object) -> None:
    path.write_bytes(msgspec.json.encode(document))
    path.chmod(0o600)
