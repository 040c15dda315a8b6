"""Inventories: which names and files are safe, and the overlay, a second inventory with the plan's variables.

Ansible evaluates templates in the overlay's files, so values that contain template markers are refused.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpusetup.model.variables import RoleVariables

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:@+-]{0,252}[A-Za-z0-9_])?")
_ADDRESS = re.compile(r"[A-Za-z0-9_:\[](?:[A-Za-z0-9_.:%@+\[\]-]{0,253})?")

_NUMBERED = re.compile(r"\A(.*?)(\d{0,15})(\D*)\Z", re.DOTALL)
_FOLDED = re.compile(r"([^,\[\]]+)(?:\[([\d,-]+)\]([^,\[\]]*))?(?:,|$)")


def check_host_name(name: str) -> str:
    """Return why this host name cannot be used, or an empty string."""
    if _NAME.fullmatch(name):
        return ""
    return "a host's name is letters, digits and . _ - + : @, at most 254, without spaces, slashes or quotes"


def check_address(address: str) -> str:
    """Return why this address cannot be used, or an empty string."""
    return "" if _ADDRESS.fullmatch(address) else "an address is letters, digits and . _ - : % [ ], no leading dash"


def folded(names: Iterable[str]) -> str:
    """Return names in short form: `gpu-[001-400],login1`; the reverse of `unfolded`."""
    runs: dict[tuple[str, int, str], list[int]] = {}
    for name in names:
        before, number, after = _NUMBERED.findall(name)[0]
        runs.setdefault((before, len(number), after), []).append(int(number or 0))
    words = []
    for (before, width, after), numbers in runs.items():
        if not width:
            words.append(before + after)
            continue
        spans: list[list[int]] = []
        for number in sorted(set(numbers)):
            if spans and spans[-1][1] == number - 1:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        told = [f"{low:0{width}}" + (f"-{high:0{width}}" if high > low else "") for low, high in spans]
        alone = len(told) == 1 and "-" not in told[0]
        words.append(f"{before}{told[0]}{after}" if alone else f"{before}[{','.join(told)}]{after}")
    return ",".join(words)


def unfolded(text: str) -> list[str]:
    """Return the names in a text of `folded`."""
    found = []
    for before, spans, after in _FOLDED.findall(text):
        for span in spans.split(","):
            low, _, high = span.partition("-")
            numbers = range(int(low), int(high or low) + 1) if spans else (0,)
            found += [f"{before}{number:0{len(low)}}{after}" if spans else before for number in numbers]
    return found


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
        raise _refused(path, f"is not text: byte {error.start} is not UTF-8", "save it as UTF-8 text") from error
    if "\0" in text:
        raise _refused(path, f"is not text: byte {content.index(0)} is zero", "save it as UTF-8 text")
    if text.startswith("\ufeff") and path.suffix not in {".yml", ".yaml", ".json"}:  # to Ansible it is a host's letter
        raise _refused(path, "begins with a byte order mark", f"remove it: sed -i '1s/^\\xef\\xbb\\xbf//' {path}")
    if len(_ALIAS.findall(content)) >= _MANY_ALIASES and _unfolded(text) > _MOST_NODES:
        raise _refused(path, "has YAML aliases of aliases that unfold to millions of values", "write the values once")


def _refused(path: Path, what: str, hint: str) -> BadInputError:
    return BadInputError("GS-406", f"the inventory {what}", path=str(path), hint=hint)


def _unfolded(text: str) -> int:
    """Return the number of values of a YAML text with all aliases expanded; 0 if it is not YAML."""
    import yaml

    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1  # an alias inside its own anchor counts as one
            parts = node.value if isinstance(node.value, list) else []
            inner = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
            sizes[id(node)] = 1 + sum(map(size, inner))
        return sizes[id(node)]

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return size(root) if root is not None else 0
    except (yaml.YAMLError, RecursionError):
        return 0


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
