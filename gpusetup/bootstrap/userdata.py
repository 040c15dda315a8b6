"""User-data of a new machine: the settings of its bootstrap, its files, and the three shapes that clouds accept."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from gpusetup import __version__
from gpusetup.errors import BadInputError
from gpusetup.model import Reading

ETC = Path("/etc/gpusetup")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of bootstrap.json."""

    source: str
    manifest_sha256: str
    variables: dict[str, Any] = {}
    """gpusetup_ variables, as in an inventory."""
    lock_url: str = ""
    lock_sha256: str = ""
    keep_driver: bool = False
    """Keep a working driver of the image if the rest of the lock is compatible with it."""
    stage: Literal["", "image"] = ""
    """`image`: install what needs no GPU and clean up; each copy continues at its first boot."""
    callback: str = ""
    reboots: int = 2
    splay: int = 0
    """Wait a random time of at most this many seconds before the start."""
    wait_deadline: int = 1800
    fetch_deadline: int = 1800


def read_config(path: Path = ETC / "bootstrap.json") -> Config:
    """Read the settings; raise if they are missing or invalid."""
    with Reading(path, ("GS-743", "the bootstrap's settings cannot be used")):
        try:
            return msgspec.json.decode(path.read_bytes(), type=Config)
        except PermissionError as error:
            raise BadInputError(
                "GS-742", "only root may read this machine's bootstrap settings", path=str(path),
                hint="run the command with sudo",
            ) from error  # fmt: skip
        except OSError as error:
            raise BadInputError(
                "GS-742", "this machine was not set up for a bootstrap", path=str(path),
                context=f"{path}: {error.strerror}",
                hint="gpusetup apply works on any machine; gpusetup cloud-init writes user-data for new ones",
            ) from error  # fmt: skip


_INSTANCE = Path(__file__).parent / "instance"
PER_BOOT = Path("/var/lib/cloud/scripts/per-boot/50-gpusetup")
_LAUNCHER = "/usr/local/lib/gpusetup/launcher"
START = f"#!/bin/sh\nexec {_LAUNCHER} boot\n"
"""What PER_BOOT is: it starts the bootstrap at each boot."""
_HOSTS = re.compile(r"[0-9A-Za-z.,:*/_\[\]-]*")
_WITH_PASSWORD = re.compile(r"://[^/?#\s]*@")
_SAFE = re.compile(r"[\x21\x23-\x26\x28-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")


@dataclass(frozen=True)
class UserData:
    """The content of user-data."""

    config: Config
    about: tuple[str, ...]
    """What will be installed, as lines for people."""
    lock: bytes = b""
    ca: str = ""
    token: str = ""
    proxy: str = ""
    no_proxy: str = ""
    joined: tuple[tuple[str, str], ...] = field(default=())
    """Additional parts of the user: MIME type and text."""

    def files(self) -> list[tuple[str, str, str]]:
        """Return path, mode and content of every file."""
        files = [
            ("/usr/local/lib/gpusetup/first-stage", "0755", instance_file("first-stage")),
            (_LAUNCHER, "0755", instance_file("launcher")),
            ("/etc/systemd/system/gpusetup-bootstrap.service", "0644", instance_file("gpusetup-bootstrap.service")),
            ("/etc/gpusetup/bootstrap.json", "0600", msgspec.json.encode(self.config).decode() + "\n"),
        ]
        if self.lock:
            files.append(("/etc/gpusetup/lock.json", "0644", self.lock.decode()))
        if self.ca:
            files.append(("/etc/gpusetup/ca.pem", "0644", self.ca))
        if self.token:
            files.append(("/etc/gpusetup/callback.token", "0600", self.token + "\n"))
        if environment := self._environment():
            files.append(("/etc/gpusetup/environment", "0600", environment))
        return files

    def _environment(self) -> str:
        lines = []
        if self.proxy:
            proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
            lines += [_assignment(name, self.proxy) for name in proxies]
            lines += [_assignment(name, self.no_proxy) for name in ("no_proxy", "NO_PROXY") if self.no_proxy]
        return "".join(lines)


def render(data: UserData, shape: str) -> str:
    """Return the user-data as `cloud-config`, `shell` or `mime`."""
    if shape == "shell":
        return _shell(data)
    if shape == "mime":
        return _mime(data)
    return _cloud_config(data)


def checked_url(url: str, option: str) -> str:
    """Return a URL if it is http(s), safe to write to files and without credentials; raise otherwise."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid brackets or port
        usable = False
    if not usable or not _SAFE.fullmatch(url):
        raise BadInputError("GS-721", f"{url!r} is not an http(s) address", path=option, hint="https://host.example/x")
    if parts.username is not None or parts.password is not None:
        raise BadInputError("GS-722", "a password in an address would be readable in the files", path=option)
    return url


def checked_hosts(text: str, option: str) -> str:
    """Return a list of hosts, networks and domains if it is safe to write to files; raise otherwise."""
    if not _HOSTS.fullmatch(text):
        raise BadInputError("GS-738", f"{text!r} is not a list of hosts", path=option)
    return text


def checked_text(value: object, option: str) -> None:
    """Raise for control characters, or passwords in addresses, anywhere in a value."""
    if isinstance(value, dict):
        for name, item in value.items():
            checked_text(name, option)
            checked_text(item, option)
    elif isinstance(value, list | tuple):
        for item in value:
            checked_text(item, option)
    elif isinstance(value, str):
        if not value.isprintable():
            raise BadInputError(
                "GS-739", f"{value[:80]!r} has control characters", path=option, hint="give one line of plain text"
            )
        if _WITH_PASSWORD.search(value):
            raise BadInputError("GS-722", "a password in an address would be readable in the user-data", path=option)


def _comments(data: UserData) -> str:
    config = data.config
    kept = ["   (a working driver of the image stays if it fits the rest)"]
    lines = [
        f"Made by gpusetup {__version__}. On its first boot the machine will:",
        *(f"  {line}" for line in data.about),
        f"1. fetch {config.source}/manifest.json, refuse it unless its SHA-256 is",
        f"   {config.manifest_sha256}, and then only files listed in it by SHA-256",
        "2. install gpusetup from them into /opt/gpusetup-controller (without a package index)",
        "3. wait for other package operations, apply the stack with the distribution's package manager, verify it",
        *(kept if config.keep_driver else ()),
        *_after(config),
        "Follow it: /opt/gpusetup-controller/bin/gpusetup cloud-init status --wait",
        "Its log: /var/log/gpusetup-bootstrap.log, journalctl -u gpusetup-bootstrap",
    ]
    return "".join(map(_comment, lines))


def _comment(text: str) -> str:
    """Return text as a comment line for YAML and sh, with control characters escaped."""
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return f"# {plain}".rstrip() + "\n"


def _assignment(name: str, value: str) -> str:
    if not value.isprintable():
        raise BadInputError("GS-739", f"{value[:80]!r} has control characters", path=name, hint="give one line")
    return f'{name}="' + re.sub(r'(["\\$`])', r"\\\1", value) + '"\n'


def _after(config: Config) -> Iterator[str]:
    if config.stage:
        yield "4. become an image: remove this machine's identity; each copy verifies itself at its first boot"
    else:
        yield f"4. reboot at most {config.reboots} times, record each reason, and continue after it"


def _cloud_config(data: UserData) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, which people can read."""

        def represent_str(self, text: str) -> yaml.ScalarNode:
            # YAML treats these characters as line ends in a block.
            style = "|" if "\n" in text and not re.search("[\x85\u2028\u2029]", text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_str)
    files = [
        {"path": path, "permissions": mode, "content": content}
        for path, mode, content in [*data.files(), (str(PER_BOOT), "0755", START)]
    ]
    document = {"merge_how": "list(append)+dict(recurse_array)+str()", "write_files": files}
    dumped = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return f"#cloud-config\n{_comments(data)}{dumped}"


def _shell(data: UserData) -> str:
    text = ["#!/bin/sh\n", _comments(data), "set -eu\numask 077\n"]
    for path, mode, content in data.files():
        end = "GPUSETUP_END"
        while end in content:
            end += "_"
        # A here-document ends in a newline, which a content without one loses again.
        ending = f"{end}\n" if content.endswith("\n") else f"\n{end}\ntruncate -s -1 {path}\n"
        text.append(f"mkdir -p -m 0755 {path.rsplit('/', 1)[0]}\n")
        text.append(f"cat >{path} <<'{end}'\n{content}{ending}chmod {mode} {path}\n")
    text.append(f"exec {_LAUNCHER} boot\n")
    return "".join(text)


_TURNED = re.compile(r"[\x00-\x08\x0b-\x1f]")
"""Characters that mail parsers change, for example into a new line."""


def _mime(data: UserData) -> str:
    """Return the MIME shape, with the user's parts first: the later part decides how cloud-init merges lists."""
    boundary = "==gpusetup=="
    parts = [*data.joined, ("text/cloud-config", _cloud_config(data))]
    text = [f'Content-Type: multipart/mixed; boundary="{boundary}"\nMIME-Version: 1.0\n\n']
    for kind, content in parts:
        head = f'--{boundary}\nContent-Type: {kind}; charset="utf-8"\nMIME-Version: 1.0\n'
        if content.isascii() and boundary not in content and not _TURNED.search(content):
            text.append(f"{head}Content-Transfer-Encoding: 7bit\n\n{content.rstrip()}\n\n")
        else:
            coded = base64.encodebytes(content.encode()).decode()
            text.append(f"{head}Content-Transfer-Encoding: base64\n\n{coded}\n")
    text.append(f"--{boundary}--\n")
    return "".join(text)


def instance_file(name: str) -> str:
    """Return a file of the machine: `first-stage` installs gpusetup where only Python is."""
    return (_INSTANCE / name).read_text(encoding="utf-8")
