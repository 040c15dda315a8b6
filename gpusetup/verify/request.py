"""What the probe on the machine is asked: level, interpreter, which GPUs, how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from gpusetup.model.verdict import Level

__all__ = ["Ask", "Observed", "deadline"]


class Ask(Struct, frozen=True, kw_only=True):
    """One request; the same for this machine and through Ansible."""

    level: Level
    python: str | None = None
    """Absolute path of the interpreter that holds CuPy; None: the one that apply made."""
    cuda_home: str | None = None
    gpus: tuple[int, ...] | None = None
    """Indexes of the GPUs to run on; None: all."""
    minutes: float = 5.0
    """How long `stress` works."""
    components: tuple[str, ...] = ()
    """Frameworks that are part of the stack, looked at even where they seem not to be installed."""
    when_idle: bool = False
    """Hold the host's lock, and only look, without measuring, while a GPU is in use."""
    budget: float = 0.0
    """Seconds after which measuring gives way to level quick; 0: no budget."""
    longest: float = 0.0
    """Seconds after which a probe of level quick is killed, where that is less than usual; 0: as usual."""

    def document(self) -> dict[str, Any]:
        """Return the JSON that the probe reads."""
        found: dict[str, Any] = {"level": self.level, "minutes": self.minutes, "components": list(self.components)}
        if self.python is not None:
            found["python"] = self.python
        if self.cuda_home is not None:
            found["cuda_home"] = self.cuda_home
        if self.gpus is not None:
            found["gpus"] = list(self.gpus)
        if self.when_idle:
            found["when_idle"] = True
        if self.budget:
            found["budget"] = self.budget
        return found


@dataclass(frozen=True)
class Observed:
    """What came back from a host: its document, or why there is none."""

    document: dict[str, Any] | None
    problem: str = ""
    unreachable: bool = False
    postponed: bool = False
    """Somebody changes the host: it is looked at another time."""


def deadline(ask: Ask) -> float:
    """Return the seconds after which the whole probe is killed: every part has a deadline of its own before it."""
    base = {"quick": 90.0, "smoke": 1080.0, "full": 2100.0, "stress": 2100.0}[ask.level]
    if ask.longest and ask.level == "quick":
        return min(base, ask.longest)
    return base + (60 * ask.minutes if ask.level == "stress" else 0.0)
