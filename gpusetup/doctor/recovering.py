"""What a finding needs: of the numbers in a message, of a machine's GPUs, and what a reset since then has settled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpusetup.recovery.since import GPU, settled
from gpusetup.recovery.since import Reset as Since
from gpusetup.recovery.table import gravest, of_cause, of_driver, of_xid, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.doctor.look import Look
    from gpusetup.model.diagnosis import Cause, Finding, Recovery
    from gpusetup.model.symptoms import Reset

__all__ = ["asked", "current", "of_machine", "recovery_of"]

_ACTION = re.compile(r"(?i)recovery action[^\n]*?\bto (?:0x)?([0-9a-f]) ?\(")


def recovery_of(cause: Cause, groups: dict[str, str], evidence: Iterable[str]) -> Recovery | None:
    """Return what a cause needs, by the Xids that were seen; without any, by those that mean it, or by our table."""
    lines = tuple(evidence)
    for line in lines:
        if action := _ACTION.search(line):
            words = [row.words[0] for row in table().driver if row.number == int(action[1], 16)]
            return of_driver(words[0] if words else action[1], _gpus(lines))
    seen = [int(number) for number in groups.get("xid", "").split(", ") if number.isdigit()]
    found = [of_xid(number, _gpus(lines)) for number in seen or cause.xids]
    return gravest(found) or of_cause(cause.id, _gpus(lines))


def _gpus(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(address.lower() for line in lines for address in GPU.findall(line)))


def asked(look: Look) -> Iterator[Recovery]:
    """Return what the driver asks for, of each GPU for which it asks for anything."""
    for address, wanted in look.symptoms.recovery.items():
        if wanted.action is not None:
            told = of_driver(wanted.action, [address])
            if told.need != "nothing":
                yield told


def of_machine(look: Look, cause: Finding | None, notices: Iterable[Finding]) -> Recovery | None:
    """Return the gravest need on a machine, with its GPUs as they are called there."""
    found = [finding.recovery for finding in (cause, *notices) if finding is not None and finding.recovery is not None]
    told = gravest([*found, *asked(look)])
    if told is None or told.need == "nothing":
        return None
    known = [gpu.address for gpu in look.facts.gpus]
    named = tuple(dict.fromkeys(next((full for full in known if full.startswith(gpu)), gpu) for gpu in told.gpus))
    if look.guest is not None:  # its driver and its reboots are somebody else's
        return msgspec.structs.replace(told, gpus=named, steps=(), commands=())
    return msgspec.structs.replace(told, gpus=named)


def current(log: str, resets: dict[str, Reset]) -> str:
    """Leave out of a kernel log what a reset of that GPU came after."""
    if not resets:
        return log
    when = {gpu: Since(reset.uptime, reset.time) for gpu, reset in resets.items()}
    return "".join(line for line in log.splitlines(keepends=True) if not settled(line, when))
