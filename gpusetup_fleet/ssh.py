"""SSH to hosts without Ansible: the command that Ansible would run, and the hosts' keys, gathered in advance.

The options come from Ansible's own connection plugin, which knows inventory, command line and ansible.cfg: see
`gpu_reach`. No value passes through a shell: the command on the host is fixed, its interpreter is a plain path.

ssh-keyscan returns whatever answers at the address: its keys must be compared with a list from another source.
"""

import base64
import binascii
import fcntl
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpusetup.drive.rundir import write_whole
from gpusetup.drive.runner import run
from gpusetup.errors import BadInputError, reason

BOOT = (
    "import sys,json,zlib,base64;"
    "L=json.loads(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())).decode());exec(L[0])"
)
"""Reads a program from one line of standard input and runs it. It has no quotes, as it is quoted twice itself."""
KeyState = Literal["known", "confirmed", "replaced", "accepted", "unconfirmed", "changed", "another-key", "unreachable"]
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
        return Route(host, problem=f"its SSH options cannot be read: {reason(error)}")


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


_CHUNK, _BESIDE, _PATIENCE = 25, 4, 10
"""Hosts per scan, scans at once, timeout: each key costs tens of milliseconds of CPU, and hosts time out too."""
_SHA256 = re.compile(r"SHA256:([A-Za-z0-9+/]{43})=?(?![A-Za-z0-9+/])")
_KEY = re.compile(r"\b(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp\d+) (AAAA[A-Za-z0-9+/=]+)")
_SSHFP = re.compile(r"\bSSHFP\s+\d+\s+2\s+([0-9A-Fa-f ]{64,})")
_PATTERNS = re.compile(r"[A-Za-z0-9.*?:\[\]!_-]+(?:,[A-Za-z0-9.*?:\[\]!_-]+)*")


class Place(NamedTuple):
    """A host's sshd: its name in known_hosts, its address and port."""

    alias: str
    address: str
    port: int
    problem: str = ""


class Key(NamedTuple):
    """A public key of a host."""

    kind: str
    text: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint as ssh shows it."""
        digest = hashlib.sha256(base64.b64decode(self.text)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def place_of(name: str, told: Mapping[str, Any], environment: Mapping[str, str]) -> Place:
    """Return where ssh connects for a host, by Ansible's options and the user's ssh configuration."""
    route = route_of(name, {**told, "password": False, "interpreter": ""})
    if route.problem or told.get("connection") != "ssh":
        return Place(name, "", 0, route.problem or f"it is reached by {told.get('connection')}, not by ssh")
    passed = {key: environment[key] for key in ("PATH", "HOME", "USER") if key in environment}
    done = run((route.argv[0], "-G", *route.argv[1:-1]), env=passed, deadline=30)
    said = dict(line.partition(" ")[::2] for line in done.out.splitlines())
    if done.code or "hostname" not in said:
        return Place(name, "", 0, f"ssh does not report its address: {done.err.strip()[-200:]}")
    through = said.get("proxyjump") or said.get("proxycommand", "")
    if through and through != "none":
        return Place(name, "", 0, f"it is reached through {through}: gather its key there, or use a CA")
    port = int(said.get("port", "22"))
    named = said.get("hostkeyalias") or said["hostname"]
    return Place(named if port == 22 or said.get("hostkeyalias") else f"[{named}]:{port}", said["hostname"], port)


def scan(
    places: Iterable[Place], environment: Mapping[str, str], types: str = "ed25519"
) -> dict[tuple[str, int], list[Key]]:
    """Return the keys of these types of all places, by address and port."""
    ports: dict[int, set[str]] = {}
    for place in places:
        ports.setdefault(place.port, set()).add(place.address)
    chunks = [
        (port, sorted(addresses)[start : start + _CHUNK])
        for port, addresses in ports.items()
        for start in range(0, len(addresses), _CHUNK)
    ]
    passed = {"PATH": environment.get("PATH", os.defpath)}

    def ask(chunk: tuple[int, list[str]]) -> dict[tuple[str, int], list[Key]]:
        port, addresses = chunk
        argv = ("ssh-keyscan", "-T", str(_PATIENCE), "-t", types, "-p", str(port), "-f", "-")
        done = run(argv, env=passed, deadline=60 + len(addresses) * _PATIENCE, stdin="\n".join(addresses).encode())
        found: dict[tuple[str, int], list[Key]] = {}
        for line in done.out.splitlines():
            words = line.split()
            if len(words) == 3 and not line.startswith("#") and (key := _key(words[1], words[2])):
                found.setdefault((words[0].strip("[").partition("]")[0], port), []).append(key)
        return found

    together: dict[tuple[str, int], list[Key]] = {}
    with ThreadPoolExecutor(_BESIDE) as workers:
        for found in workers.map(ask, chunks):
            together |= found
    return together


def trusted(path: Path, names: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the trusted fingerprints of each host, from a file or from a folder with a file per host.

    A file in a folder belongs to the host of its name: an instance's console log, `ssh-keygen -l`. A single file names
    the host in each line (`names` maps names and addresses to hosts): known_hosts, SSHFP records, name and fingerprint.
    """
    found: dict[str, set[str]] = {}
    if path.is_dir():
        for file in sorted(path.iterdir()):
            host = names.get(file.name) or names.get(file.stem)
            if host and file.is_file():
                found.setdefault(host, set()).update(_prints(file.read_text(encoding="utf-8", errors="replace")))
        return found
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BadInputError(
            "GS-946", f"the list of trusted keys cannot be read: {reason(error)}", path=str(path),
            hint="a known_hosts file, SSHFP records, or lines of a host and a SHA256: fingerprint",
        ) from error  # fmt: skip
    for line in lines:
        hosts = {names[word] for word in re.split(r"[\s,]+", line) if word in names}
        hosts |= {names[word.rstrip(".")] for word in line.split()[:1] if word.rstrip(".") in names}
        for host in hosts:
            found.setdefault(host, set()).update(_prints(line))
    return found


def kept(path: Path) -> dict[str, list[Key]]:
    """Return the keys in a known_hosts file by host name."""
    found: dict[str, list[Key]] = {}
    for line in _lines(path):
        words = line.split()
        if len(words) >= 3 and not words[0].startswith(("#", "@", "|")) and (key := _key(words[1], words[2])):
            for alias in words[0].split(","):
                found.setdefault(alias, []).append(key)
    return found


def judge(shown: list[Key], known: list[Key], may: set[str] | None, *, accept: bool) -> tuple[KeyState, list[Key]]:
    """Return the verdict on the keys that a host shows, and the keys to keep for it."""
    good = [key for key in shown if may and key.fingerprint in may]
    before = {key.kind: key for key in known}
    changed = [key for key in shown if key.kind in before and before[key.kind] != key]
    if may and not good:
        return "another-key", known
    if good:
        if all(before.get(key.kind) == key for key in good):
            return "known", known
        return ("replaced" if changed else "confirmed"), good
    if changed:
        return "changed", known
    if known and shown:
        return "known", known
    return ("accepted", shown) if accept else ("unconfirmed", known)


def authority(path: Path, patterns: str) -> str:
    """Return the known_hosts line that trusts a CA's public key for these host patterns."""
    found = _KEY.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    if found is None or not _key(found[1], found[2]):
        raise BadInputError(
            "GS-946", f"{path} holds no public key of a CA", path="--ca",
            hint="the .pub file of the key that signs host keys: ssh-keygen -s CA -h -I NAME -n NAME HOST.pub",
        )  # fmt: skip
    if not _PATTERNS.fullmatch(patterns):
        raise BadInputError(
            "GS-946", f"{patterns!r} is not a list of host patterns", path="--for", hint="--for '*.gpu.example,10.1.*'"
        )
    return f"@cert-authority {patterns} {found[1]} {found[2]}"


def write(path: Path, keys: Mapping[str, list[Key]], authorities: Iterable[str] = ()) -> None:
    """Write the keys of these hosts to our known_hosts file atomically; other lines stay."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # another run may add other hosts
        lines = []
        for line in _lines(path):
            names = line.split(maxsplit=1)[0] if line.split() else ""
            if not line.startswith(("#", "@")) and names in keys:
                continue
            if line not in authorities:
                lines.append(line)
        lines += authorities
        lines += [f"{alias} {key.kind} {key.text}" for alias, found in keys.items() for key in found]
        write_whole(path, ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"), 0o600)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []


def _prints(text: str) -> set[str]:
    found = {f"SHA256:{match[1]}" for match in _SHA256.finditer(text)}
    found |= {key.fingerprint for match in _KEY.finditer(text) if (key := _key(match[1], match[2]))}
    for match in _SSHFP.finditer(text):
        digest = bytes.fromhex(match[1].replace(" ", "")[:64])
        found.add("SHA256:" + base64.b64encode(digest).decode().rstrip("="))
    return found


def _key(kind: str, text: str) -> Key | None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Key(kind, text)
