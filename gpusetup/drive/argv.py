"""Ansible's arguments and environment, as pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reach:
    """How to reach hosts: options of the command line that are passed to Ansible unchanged.

    Passwords are passed through named pipes instead (`gpusetup.drive.secrets`).
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
) -> tuple[str, ...]:
    """Return all arguments except the playbook; `inventories` in rising precedence, `variables` as a JSON file."""
    argv = [f"--inventory={inventory}" for inventory in inventories]
    options: tuple[tuple[str, str | Path | None], ...] = (
        ("--limit", limit or reach.limit), ("--forks", str(reach.forks) if reach.forks else None),
        ("--user", reach.user), ("--private-key", reach.private_key),
        ("--vault-password-file", reach.vault_password_file), ("--vault-password-file", vault_password),
        ("--become-password-file", become_password),
    )  # fmt: skip
    for name, value in options:
        if value is not None:
            # One element: a value that begins with a dash cannot become an option.
            argv.append(f"{name}={value}")
    argv += ["--check", "--diff"] if check else []
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
    """Return the environment: the user's own, our required variables, and better defaults where nothing is configured.

    `configured`: the (section, key) pairs of the active ansible.cfg, which a variable would override.
    `known_hosts`: a file with host keys that were gathered in advance.
    """
    environment = {name: value for name, value in outside.items() if name not in _DROPPED}
    for (section, key), (name, value) in (_PREFERRED | _sockets(outside, configured)).items():
        if (section, key) not in configured:
            environment.setdefault(name, value)
    if known_hosts is not None and ("ssh_connection", "ssh_extra_args") not in configured:
        # In addition to the files of the system and the user.
        files = f"/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2 {known_hosts}"
        given = f"{outside.get('ANSIBLE_SSH_EXTRA_ARGS', '')} -o GlobalKnownHostsFile='{files}'"
        environment["ANSIBLE_SSH_EXTRA_ARGS"] = given.strip()
    environment |= {
        "ANSIBLE_COLLECTIONS_PATH": _path(collections, outside.get("ANSIBLE_COLLECTIONS_PATH")),
        "ANSIBLE_CALLBACK_PLUGINS": _path(package / "callback_plugins", outside.get("ANSIBLE_CALLBACK_PLUGINS")),
        "ANSIBLE_CALLBACKS_ENABLED": _list("gpusetup_events", outside.get("ANSIBLE_CALLBACKS_ENABLED")),
        "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_DEPRECATION_WARNINGS": "0", "ANSIBLE_GATHERING": "explicit", "GPUSETUP_EVENTS": str(events),
        "PYTHONPATH": str(package.parent), "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    return environment


_PREFERRED = {
    ("ssh_connection", "pipelining"): ("ANSIBLE_PIPELINING", "1"),
    # Notices a broken connection after a minute, not after TCP's quarter of an hour.
    ("ssh_connection", "ssh_args"): (
        "ANSIBLE_SSH_ARGS",
        "-C -o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=15 -o ServerAliveCountMax=4",
    ),
    ("defaults", "forks"): ("ANSIBLE_FORKS", "25"),
    ("defaults", "timeout"): ("ANSIBLE_TIMEOUT", "20"),
    ("defaults", "interpreter_python"): ("ANSIBLE_PYTHON_INTERPRETER", "auto_silent"),
}

_SOCKET_FOLDER = 75
"""Longest folder of a control socket: a socket path has at most 107 bytes, and SSH adds two names to it."""


def _sockets(
    outside: Mapping[str, str], configured: frozenset[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return settings for a home with a very long path, where control sockets would make every host unreachable."""
    if "ANSIBLE_SSH_CONTROL_PATH_DIR" in outside or ("ssh_connection", "control_path_dir") in configured:
        return {}
    folder = outside.get("ANSIBLE_HOME") or f"{outside.get('HOME', '')}/.ansible"
    if len(f"{folder}/cp".encode(errors="surrogateescape")) <= _SOCKET_FOLDER:
        return {}
    runtime = outside.get("XDG_RUNTIME_DIR", "")
    if 0 < len(runtime.encode(errors="surrogateescape")) <= _SOCKET_FOLDER:
        return {("ssh_connection", "control_path_dir"): ("ANSIBLE_SSH_CONTROL_PATH_DIR", runtime)}
    name, arguments = _PREFERRED["ssh_connection", "ssh_args"]
    alone = arguments.replace("-o ControlMaster=auto -o ControlPersist=60s ", "")
    return {("ssh_connection", "ssh_args"): (name, alone)}


_DROPPED = frozenset({"PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "ANSIBLE_LOG_PATH", "ANSIBLE_FORCE_COLOR"})


def _path(ours: Path, theirs: str | None) -> str:
    return f"{ours}:{theirs}" if theirs else str(ours)


def _list(ours: str, theirs: str | None) -> str:
    return f"{ours},{theirs}" if theirs else ours
