"""Examine the machines to diagnose: this one, a captured one, or every host of an inventory in one round trip."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from gpusetup.content import host_code
from gpusetup.errors import BadInputError
from gpusetup.matrix.systems import is_jetson

if TYPE_CHECKING:
    from pathlib import Path

    from gpusetup.doctor.look import Look
    from gpusetup.drive.events import Track
    from gpusetup.drive.playbook import Session
    from gpusetup.facts.collect import Lookup
    from gpusetup.model.facts import Failure
    from gpusetup.plan.preflight import Guest


def _look(host: Any, lookup: Lookup, environment: dict[str, str]) -> Look:
    from gpusetup.facts.collect import LOCAL_NAME

    told = host_code("gpu_probe.facts").collect(host, None, False)
    symptoms = host_code("gpu_probe.symptoms").collect(host, told, environment)
    return _opened(told, symptoms, LOCAL_NAME, lookup)


def _opened(facts: object, symptoms: object, name: str, lookup: Lookup) -> Look:
    import msgspec

    from gpusetup.doctor.look import Look
    from gpusetup.facts.collect import from_probe
    from gpusetup.model.diagnosis import Symptoms

    try:
        return Look(from_probe(facts, name, lookup), msgspec.convert(symptoms, Symptoms))
    except msgspec.ValidationError as error:
        raise BadInputError("GS-304", f"the symptoms of {name} cannot be used: {error}") from error


def this_machine(lookup: Lookup) -> Look:
    """Examine this machine, with its user's environment."""
    return _look(host_code("gpu_probe.host").open_host("/"), lookup, dict(os.environ))


def guest_here() -> Guest | None:
    """Return `wsl` or `jetson` if the driver comes from Windows or Jetson Linux, else None; examine nothing else."""
    if is_jetson(platform.release()):
        return "jetson"
    return "wsl" if host_code("gpu_probe.virtualisation").is_wsl(host_code("gpu_probe.host").open_host("/")) else None


def captured(root: Path, lookup: Lookup) -> Look:
    """Examine a captured machine."""
    from gpusetup.facts.collect import open_captured

    host = open_captured(root)
    return _look(host, lookup, host_code("gpu_probe.symptoms").surroundings(host))


def hosts(
    session: Session, lookup: Lookup, *, overlay: Path | None = None
) -> tuple[dict[str, Look], dict[str, Failure], Track]:
    """Examine every host of an inventory; return the looks, the failures and the playbook's track."""
    from gpusetup.facts import fleet

    looked = fleet.look(session, lookup, candidates=False, symptoms=True, overlay=overlay)
    opened = {
        name: _opened(told["facts"], told.get("symptoms"), name, lookup)
        for name in looked.facts.hosts
        if (told := looked.run.data(name, fleet.ACTION)) is not None
    }
    return opened, dict(looked.facts.failures), looked.run.track
