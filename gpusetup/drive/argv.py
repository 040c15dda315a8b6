"""What Ansible is called with, as pure functions: its arguments and an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Reach:
    """How hosts are reached: what a person said on the command line, handed to Ansible as it is.

    Passwords are not here: they travel through named pipes (`gpusetup.drive.passwords`).
    """

    inventory: str | None = None
    """None: this machine."""
    limit: str | None = None
    forks: int | None = None
    user: str | None = None
    private_key: str | None = None
    vault_password_file: str | None = None
    extra_vars: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()


def playbook_options(
    reach: Reach,
    *,
    inventories: Sequence[Path | str],
    become_password: Path | None = None,
    vault_password: Path | None = None,
    variables: Path | None = None,
    limit: str | None = None,
    check: bool = False,
    diff: bool = False,
) -> tuple[str, ...]:
    """Return all but the playbook: inventories in rising precedence, variables as a JSON file, what was passed on."""
    argv = [f"--inventory={inventory}" for inventory in inventories]
    options: tuple[tuple[str, str | Path | None], ...] = (
        ("--limit", limit or reach.limit),
        ("--forks", str(reach.forks) if reach.forks else None),
        ("--user", reach.user),
        ("--private-key", reach.private_key),
        ("--vault-password-file", reach.vault_password_file),
        ("--vault-password-file", vault_password),
        ("--become-password-file", become_password),
    )
    for name, value in options:
        if value is not None:
            # One element, so that a value which begins with a dash cannot become an option.
            argv.append(f"{name}={value}")
    argv += ["--check"] if check else []
    argv += ["--diff"] if diff else []
    argv += [f"--extra-vars={value}" for value in reach.extra_vars]
    argv += [f"--extra-vars=@{variables}"] if variables is not None else []
    return (*argv, *reach.passthrough)


def ansible_environment(
    outside: Mapping[str, str],
    *,
    collections: Path,
    package: Path,
    events: Path,
    configured: frozenset[tuple[str, str]] = frozenset(),
    known_hosts: Path | None = None,
) -> dict[str, str]:
    """Return the environment: the person's own, ours where it must be, and better defaults where nobody said a word.

    `configured` are the (section, key) pairs of the ansible.cfg in force: an environment variable would silence them.
    `known_hosts`: keys of hosts that were gathered beforehand.
    """
    environment = {name: value for name, value in outside.items() if name not in _DROPPED}
    for (section, key), (name, value) in (_PREFERRED | _sockets(outside, configured)).items():
        if (section, key) not in configured:
            environment.setdefault(name, value)
    if known_hosts is not None and ("ssh_connection", "ssh_extra_args") not in configured:
        # Beside the site's own files and the person's, not in their place.
        files = f"/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2 {known_hosts}"
        given = f"{outside.get('ANSIBLE_SSH_EXTRA_ARGS', '')} -o GlobalKnownHostsFile='{files}'"
        environment["ANSIBLE_SSH_EXTRA_ARGS"] = given.strip()
    environment |= {
        "ANSIBLE_COLLECTIONS_PATH": _path(collections, outside.get("ANSIBLE_COLLECTIONS_PATH")),
        "ANSIBLE_CALLBACK_PLUGINS": _path(package / "callback_plugins", outside.get("ANSIBLE_CALLBACK_PLUGINS")),
        "ANSIBLE_CALLBACKS_ENABLED": _list("gpusetup_events", outside.get("ANSIBLE_CALLBACKS_ENABLED")),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_GATHERING": "explicit",
        "GPUSETUP_EVENTS": str(events),
        "PYTHONPATH": str(package.parent),
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C.UTF-8",
    }
    return environment


_PREFERRED = {
    ("ssh_connection", "pipelining"): ("ANSIBLE_PIPELINING", "1"),
    # A connection that was cut is noticed after a minute, not after TCP's quarter of an hour.
    ("ssh_connection", "ssh_args"): (
        "ANSIBLE_SSH_ARGS",
        "-C -o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=15 -o ServerAliveCountMax=4",
    ),
    ("defaults", "forks"): ("ANSIBLE_FORKS", "25"),
    ("defaults", "timeout"): ("ANSIBLE_TIMEOUT", "20"),
    ("defaults", "interpreter_python"): ("ANSIBLE_PYTHON_INTERPRETER", "auto_silent"),
}

_SOCKET_FOLDER = 75
"""Longest folder of a control socket: the kernel takes 107 letters, SSH adds a name and then a temporary one to it."""


def _sockets(
    outside: Mapping[str, str], configured: frozenset[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Below a home with a very long path SSH could not share connections, and every host would be unreachable."""
    if "ANSIBLE_SSH_CONTROL_PATH_DIR" in outside or ("ssh_connection", "control_path_dir") in configured:
        return {}
    folder = outside.get("ANSIBLE_HOME") or f"{outside.get('HOME', '')}/.ansible"
    if len(f"{folder}/cp") <= _SOCKET_FOLDER:
        return {}
    runtime = outside.get("XDG_RUNTIME_DIR", "")
    if 0 < len(runtime) <= _SOCKET_FOLDER:
        return {("ssh_connection", "control_path_dir"): ("ANSIBLE_SSH_CONTROL_PATH_DIR", runtime)}
    name, arguments = _PREFERRED["ssh_connection", "ssh_args"]
    alone = arguments.replace("-o ControlMaster=auto -o ControlPersist=60s ", "")
    return {("ssh_connection", "ssh_args"): (name, alone)}


_DROPPED = frozenset({"PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "ANSIBLE_LOG_PATH", "ANSIBLE_FORCE_COLOR"})


def _path(ours: Path, theirs: str | None) -> str:
    return f"{ours}:{theirs}" if theirs else str(ours)


def _list(ours: str, theirs: str | None) -> str:
    return f"{ours},{theirs}" if theirs else ours
