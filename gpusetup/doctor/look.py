"""What a diagnosis looks at: the facts, and beside them what only the doctor asks of a machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusetup.model.facts import HostFacts

__all__ = ["Files", "Look", "Outcome", "cause", "fine", "notice", "unknown"]

_LOG_COMMANDS = (
    ("kernel-log", ["dmesg"]),
    ("kernel-journal", ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-iso"]),
)
_LOG_FILES = ("/var/log/dmesg", "/var/log/kern.log")
_LOG_LIMIT = 8 * 1024 * 1024


class Files(Protocol):
    """A machine's files and commands, living or captured: the probe's door to it."""

    live: bool

    def read(self, path: str) -> str | None:
        """Return a file's text."""

    def read_bytes(self, path: str) -> bytes | None:
        """Return a file's bytes."""

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Return the names in a folder."""

    def link(self, path: str) -> str | None:
        """Return where a symbolic link leads."""

    def exists(self, path: str) -> bool:
        """Tell whether a path is there."""

    def inside(self, path: str) -> str:
        """Return the path to open."""

    def run(self, label: str, argv: Sequence[str], seconds: float) -> dict[str, Any]:
        """Return a command's answer."""


@dataclass(frozen=True)
class Outcome:
    """How a question was answered; a cause brings its evidence and the numbers in it."""

    answer: Literal["fine", "cause", "unknown", "notice"]
    text: str
    cause: str = ""
    evidence: tuple[str, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)


def fine(text: str) -> Outcome:
    """Nothing wrong here."""
    return Outcome("fine", text)


def unknown(text: str) -> Outcome:
    """It could not be looked at."""
    return Outcome("unknown", text)


def cause(name: str, text: str, *evidence: str, **groups: str) -> Outcome:
    """This is it."""
    return Outcome("cause", text, name, tuple(evidence), groups)


def notice(name: str, text: str, *evidence: str, **groups: str) -> Outcome:
    """Worth knowing, and not what keeps the GPU from working."""
    return Outcome("notice", text, name, tuple(evidence), groups)


@dataclass
class Look:
    """One machine. `files` is None when only its facts are known (a host of an inventory)."""

    facts: HostFacts
    files: Files | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    root_would_add: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """It is the machine that this runs on."""
        return self.files is not None and self.files.live

    @cached_property
    def container(self) -> bool:
        """A container or WSL: the driver belongs to the host."""
        return self.facts.virtualisation.driver_refused is not None

    @cached_property
    def loaded(self) -> str | None:
        """Version of the driver's kernel module that is loaded."""
        driver = self.facts.driver
        return driver.loaded.version if driver and driver.loaded else None

    @cached_property
    def driver(self) -> str | None:
        """The driver that programs meet: the loaded module's version, else the installed one."""
        shown = next((gpu.driver_version for gpu in self.facts.gpus if gpu.driver_version), None)
        return self.loaded or shown or (self.facts.driver.version if self.facts.driver else None)

    @cached_property
    def kernel_log(self) -> str | None:
        """The kernel's messages since boot, None when they cannot be read."""
        if self.files is None:
            return None
        for label, argv in _LOG_COMMANDS:
            told = self.files.run(label, argv, 2)
            if told["rc"] == 0 and told["out"].strip():
                return str(told["out"])[-_LOG_LIMIT:]
        for path in _LOG_FILES:
            if text := self.files.read(path):
                begin = text.rfind("Linux version ")
                return text[max(begin, 0) :][-_LOG_LIMIT:]
        if self.live:
            self.root_would_add.append("the kernel's messages (dmesg is kept from users here)")
        return None

    def read(self, path: str) -> str | None:
        """Return a file's text; None without files."""
        return self.files.read(path) if self.files is not None else None

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Return the names in a folder."""
        return self.files.names(folder, pattern) if self.files is not None else []

    def exists(self, path: str) -> bool:
        """Tell whether a path is there."""
        return self.files is not None and self.files.exists(path)

    def resolved(self, path: str) -> str:
        """Follow symbolic links, inside the machine."""
        for _hop in range(20):
            target = self.files.link(path) if self.files is not None else None
            if not target:
                break
            path = target if target.startswith("/") else path.rsplit("/", 1)[0] + "/" + target
            while "/../" in path:
                path = re.sub(r"/[^/]+/\.\./", "/", path, count=1)
        return path
