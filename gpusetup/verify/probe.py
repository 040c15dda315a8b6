"""The probe that observes a machine: the request, its deadline, and the process that runs it on this machine."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from gpusetup.content import collections_path, content_path, host_code
from gpusetup.drive.runner import run
from gpusetup.errors import GpuSetupError, VerifyFailedError
from gpusetup.model.verdict import Level


class Ask(Struct, frozen=True, kw_only=True):
    """A request to the probe, on this machine or through Ansible."""

    level: Level
    python: str | None = None
    """Absolute path of the Python that has CuPy; None: the one that apply made."""
    cuda_home: str | None = None
    gpus: tuple[int, ...] | None = None
    """Indexes of the GPUs to measure; None: all."""
    minutes: float = 5.0
    """How long `stress` loads the GPUs."""
    components: tuple[str, ...] = ()
    """Frameworks of the stack; they are tried even where they seem not to be installed."""
    when_idle: bool = False
    """Take the host's lock, and measure nothing while a GPU is in use."""
    budget: float = 0.0
    """Seconds after which the probe stops measuring and answers with level quick; 0: no limit."""
    longest: float = 0.0
    """Seconds after which a probe of level quick is killed, if fewer than usual; 0: the usual deadline."""

    def document(self) -> dict[str, Any]:
        """Return the JSON that the probe reads."""
        return {name: value for name, value in asdict(self).items() if value and name != "longest"}


@dataclass(frozen=True)
class Observed:
    """A host's document, or the reason why there is none."""

    document: dict[str, Any] | None
    problem: str = ""
    unreachable: bool = False
    postponed: bool = False
    """Another gpusetup changes the host at the moment: it is to be observed later."""
    own_fault: bool = False
    """The probe failed by itself, not by the machine."""


def deadline(ask: Ask) -> float:
    """Return the seconds after which the whole probe is killed; each part has an earlier deadline."""
    base = {"quick": 90.0, "smoke": 1080.0, "full": 2100.0, "stress": 2100.0}[ask.level]
    if ask.longest and ask.level == "quick":
        return min(base, ask.longest)
    return base + (60 * ask.minutes if ask.level == "stress" else 0.0)


def probe_argv() -> list[str]:
    """Return the probe's command line, with the same files that the action plugin sends to other machines."""
    program = content_path() / "roles/gpu_verify/files/gpu_measure/observe.py"
    return [sys.executable, str(program), str(collections_path())]


def observe_in_turn(ask: Ask, environment: Mapping[str, str]) -> Observed:
    """Run the probe here; as root with `when_idle`, hold the host's lock meanwhile or return `postponed`."""
    if not ask.when_idle or os.geteuid() != 0:
        return Observed(observe_here(ask, environment))
    failure, owner = host_code("gpu_host.failure"), host_code("gpu_host.owner")
    try:
        with owner.measuring():
            return Observed(observe_here(ask, environment))
    except failure.HostFailure as other:
        return Observed(None, "{message}: {context}".format(**other.fields), postponed=True)


def observe_here(ask: Ask, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run the probe here and return its document."""
    limit = deadline(ask)
    finished = run(
        probe_argv(),
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        deadline=limit,
        stdin=json.dumps({**ask.document(), "parent": os.getpid()}).encode(),
    )
    document = finished.document()
    if document is not None:
        return document
    why = f"it was stopped after {limit:.0f} s" if finished.timed_out else f"it exited with {finished.code}"
    # Only a probe that hangs or crashes speaks against the machine; another end without an answer is gpusetup's fault.
    crashed = finished.code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
    kind = VerifyFailedError if finished.timed_out or crashed else GpuSetupError
    raise kind(
        "GS-502",
        f"the probe on this machine gave no answer: {why}",
        context=finished.err.strip()[-800:],
        note="a broken driver can hang or crash every program that uses it" if kind is VerifyFailedError else "",
    )
