"""How to reach a host without Ansible: the SSH command that Ansible would run, as an argument list.

The options come from Ansible's own connection plugin, which knows inventory, command line and ansible.cfg: see
`gpu_reach`. No value passes through a shell: the command on the host is fixed, its interpreter is a plain path.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOT = (
    "import sys,json,zlib,base64;"
    "L=json.loads(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())).decode());exec(L[0])"
)
"""Reads a program from one line of standard input and runs it. It has no quotes, as it is quoted twice itself."""
_PYTHONS = ("/usr/bin/python3", "python3", "/usr/libexec/platform-python", "/usr/local/bin/python3")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+-]*")
_ALIVE = ("ServerAliveInterval=15", "ServerAliveCountMax=4")
_TIMEOUT = 20


@dataclass(frozen=True)
class Route:
    """The command that starts a program on a host, or why there is none."""

    host: str
    argv: tuple[str, ...] = ()
    problem: str = ""


def local_route(host: str) -> Route:
    """Return the route to this machine."""
    return Route(host, (sys.executable, "-I", "-c", BOOT))


def route_of(host: str, told: Mapping[str, Any]) -> Route:
    """Return the route to a host from the options of its Ansible connection plugin."""
    connection = str(told.get("connection", ""))
    python = str(told.get("interpreter") or "")
    given = "" if not python or python.startswith("auto") else python
    if given and not _PLAIN_PATH.fullmatch(given):
        return Route(host, problem=f"its ansible_python_interpreter is not a plain path: {given!r}")
    if connection == "local":
        return Route(host, (given or "/usr/bin/python3", "-I", "-c", BOOT))
    if connection != "ssh":
        return Route(host, problem=f"it is reached by {connection or 'no connection'}; watch needs ssh or local")
    if told.get("password"):
        return Route(host, problem="it is reached with a password; watch needs an SSH key")
    try:
        return Route(host, tuple(_ssh(told.get("options") or {}, given)))
    except ValueError as error:
        return Route(host, problem=f"its SSH options cannot be read: {error}")


def _ssh(options: Mapping[str, Any], python: str) -> list[str]:
    """Return the ssh command. If an option occurs twice, ssh uses the first one."""
    argv = [str(options.get("ssh_executable") or "ssh"), "-T"]
    # No prompts, and no shared connection: Ansible may close one at any time.
    own = ["BatchMode=yes", "ControlMaster=no", "ControlPath=none", "ForwardX11=no", "ClearAllForwardings=yes"]
    argv += _options(own)
    argv += shlex.split(str(options.get("ssh_args") or ""))
    if options.get("host_key_checking") is False:
        argv += _options(["StrictHostKeyChecking=no"])
    if options.get("port") is not None:
        argv += ["-p", str(int(options["port"]))]
    if options.get("private_key_file"):
        argv += _options([f'IdentityFile="{os.path.expanduser(str(options["private_key_file"]))}"'])  # noqa: PTH111 - takes any name
    if options.get("remote_user"):
        argv += ["-l", str(options["remote_user"])]
    argv += _options([f"ConnectTimeout={int(options.get('timeout') or _TIMEOUT)}"])
    for name in ("ssh_common_args", "ssh_extra_args"):
        argv += shlex.split(str(options.get(name) or ""))
    argv += _options(_ALIVE)
    return [*argv, "--", str(options["host"]), _remote(python)]


def _options(pairs: tuple[str, ...] | list[str]) -> list[str]:
    return [word for pair in pairs for word in ("-o", pair)]


def _remote(python: str) -> str:
    """Return the command on the host: it starts the first Python found, with BOOT."""
    places = " ".join((python, *_PYTHONS) if python else _PYTHONS)
    script = (
        f'for p in {places}; do if command -v $p >/dev/null 2>&1; then exec $p -I -c "{BOOT}"; fi; done; '
        "echo no Python 3 on this host >&2; exit 127"
    )
    return f"/bin/sh -c '{script}'"
