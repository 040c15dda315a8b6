"""User-data of a new machine: its parts, and the three shapes that clouds take."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from gpusetup import __version__
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.bootstrap.config import Config

__all__ = ["UserData", "checked_url", "first_stage", "render"]

_INSTANCE = Path(__file__).parent / "instance"
_PER_BOOT = "/var/lib/cloud/scripts/per-boot/50-gpusetup"
_LAUNCHER = "/usr/local/lib/gpusetup/launcher"
_SAFE = re.compile(r"[\x21\x23-\x26\x28-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")


@dataclass(frozen=True)
class UserData:
    """All that goes into user-data."""

    config: Config
    about: tuple[str, ...]
    """What it will install, in lines for people."""
    lock: bytes = b""
    ca: str = ""
    token: str = ""
    proxy: str = ""
    no_proxy: str = ""
    joined: tuple[tuple[str, str], ...] = field(default=())
    """The user's own parts: MIME type and text."""

    def files(self) -> list[tuple[str, str, str]]:
        """Return path, mode and content of every file."""
        files = [
            ("/usr/local/lib/gpusetup/first-stage", "0755", first_stage()),
            (_LAUNCHER, "0755", _text("launcher")),
            ("/etc/systemd/system/gpusetup-bootstrap.service", "0644", _text("gpusetup-bootstrap.service")),
            ("/etc/gpusetup/bootstrap.json", "0600", msgspec.json.encode(_told(self.config)).decode() + "\n"),
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
            lines += [f"{name}={self.proxy}" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")]
            lines += [f"{name}={self.no_proxy}" for name in ("no_proxy", "NO_PROXY") if self.no_proxy]
        return "".join(f"{line}\n" for line in lines)


def render(data: UserData, shape: str) -> str:
    """Return the user-data as `cloud-config`, `shell` or `mime`."""
    if shape == "shell":
        return _shell(data)
    if shape == "mime":
        return _mime(data)
    return _cloud_config(data)


def checked_url(url: str, option: str) -> str:
    """Return a URL that is safe to write into files on a machine; credentials in it would be a secret in user-data."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not _SAFE.fullmatch(url):
        raise BadInputError("GS-721", f"{url!r} is not an http(s) address", path=option)
    if parts.username is not None or parts.password is not None:
        raise BadInputError(
            "GS-722", "a password in an address would be readable in the user-data", path=option,
            hint="use an address that needs no password inside your network",
        )  # fmt: skip
    return url


def _told(config: Config) -> dict[str, object]:
    """Return the settings that differ from what is usual."""
    usual = msgspec.structs.replace(config, **{
        item.name: item.default if item.default is not msgspec.NODEFAULT else item.default_factory()
        for item in msgspec.structs.fields(config)
        if not item.required
    })  # fmt: skip
    return {
        name: value
        for name, value in msgspec.structs.asdict(config).items()
        if name in {"source", "manifest_sha256"} or value != getattr(usual, name)
    }


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
        "Follow it: gpusetup cloud-init status --wait",
        "Its log: /var/log/gpusetup-bootstrap.log, journalctl -u gpusetup-bootstrap",
    ]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _after(config: Config) -> Iterator[str]:
    if config.stage:
        yield "4. become an image: remove this machine's identity; each copy verifies itself at its first boot"
    else:
        yield f"4. reboot at most {config.reboots} times, record each reason, and continue by itself"
    if config.recheck:
        yield f"5. check again every {config.recheck} s: report differences, apply a newly pinned lock; no reboot"


def _cloud_config(data: UserData) -> str:
    text = ["#cloud-config\n", _comments(data)]
    text.append("merge_how: 'list(append)+dict(recurse_array)+str()'\nwrite_files:\n")
    launch = f"#!/bin/sh\nexec {_LAUNCHER} boot\n"
    for path, mode, content in [*data.files(), (_PER_BOOT, "0755", launch)]:
        text.append(f"- path: {path}\n  permissions: '{mode}'\n  content: |\n")
        text += [f"    {line}\n" if line else "\n" for line in content.splitlines()]
    return "".join(text)


def _shell(data: UserData) -> str:
    text = ["#!/bin/sh\n", _comments(data), "set -eu\numask 077\n"]
    for path, mode, content in data.files():
        end = "GPUSETUP_END"
        if end in content:
            raise BadInputError("GS-723", f"a line {end} cannot be part of a shell script's files", path=path)
        folder = path.rsplit("/", 1)[0]
        body = content if content.endswith("\n") else content + "\n"
        text.append(f"mkdir -p -m 0755 {folder}\ncat >{path} <<'{end}'\n{body}{end}\nchmod {mode} {path}\n")
    text.append(f"exec {_LAUNCHER} boot\n")
    return "".join(text)


def _mime(data: UserData) -> str:
    """The user's parts first: ours says how lists are merged, and that is judged by the later part."""
    boundary = "==gpusetup=="
    parts = [*data.joined, ("text/cloud-config", _cloud_config(data))]
    text = [f'Content-Type: multipart/mixed; boundary="{boundary}"\nMIME-Version: 1.0\n\n']
    for kind, content in parts:
        head = f'--{boundary}\nContent-Type: {kind}; charset="utf-8"\nMIME-Version: 1.0\n'
        if content.isascii() and boundary not in content:
            text.append(f"{head}Content-Transfer-Encoding: 7bit\n\n{content.rstrip()}\n\n")
        else:
            coded = base64.encodebytes(content.encode()).decode()
            text.append(f"{head}Content-Transfer-Encoding: base64\n\n{coded}\n")
    text.append(f"--{boundary}--\n")
    return "".join(text)


def first_stage() -> str:
    """Return the program that installs gpusetup on a machine which has nothing but Python."""
    return _text("first-stage")


def _text(name: str) -> str:
    return (_INSTANCE / name).read_text(encoding="utf-8")
