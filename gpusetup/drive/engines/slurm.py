"""The engine `slurm`: a Slurm job holds each node that changes, and Slurm reboots it; playbooks run on this machine."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from gpusetup.drive.engines.base import Ansible
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from gpusetup.drive.scheduler.base import Caller, Holder

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:@+-]*")
_SBATCH = ("partition", "account", "qos", "time", "reservation")


@dataclass(frozen=True)
class Slurm(Ansible):
    """Runs playbooks like `Ansible`; its settings are those of the jobs."""

    name: ClassVar[str] = "slurm"
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = ""
    reservation: str = ""
    nextstate: str = "DOWN"

    def __post_init__(self) -> None:
        for option in _SBATCH:
            value = getattr(self, option)
            if value and not _WORD.fullmatch(value):
                raise _wrong(f"{option}={value}", "a name, or for time what sbatch takes: 90, 2:00:00, 1-12")
        if self.nextstate.upper() not in ("DOWN", "RESUME"):
            raise _wrong(
                f"nextstate={self.nextstate}", "DOWN (a node is verified before it works again) or RESUME (it is not)"
            )

    def holder(self, call: Caller, run: str) -> Holder:
        """Return the scheduler that holds the nodes of a run."""
        from gpusetup.drive.scheduler.slurm_jobs import SlurmJobs

        if not call.prefix and shutil.which("sbatch") is None:
            raise BadInputError(
                "GS-820", "Slurm's commands are not on this machine", path="--engine", context="looked for sbatch"
            )
        words = tuple(f"--{option}={value}" for option in _SBATCH if (value := getattr(self, option)))
        state: Literal["DOWN", "RESUME"] = "RESUME" if self.nextstate.upper() == "RESUME" else "DOWN"
        return SlurmJobs(
            call=call, run=run, words=words, partition=self.partition, reservation=self.reservation, next_state=state
        )


def _wrong(said: str, takes: str) -> BadInputError:
    return BadInputError(
        "GS-821", f"the engine slurm cannot use {said}", path="--engine-option", hint=f"it takes {takes}"
    )
