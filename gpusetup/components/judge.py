"""Loads the rules that hosts use too (`gpu_judge`, from the same files) and converts facts into their form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpusetup.content import host_code

if TYPE_CHECKING:
    from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import (
        drift,
        driver,
        gpudirect,
        mig,
        names,
        record_form,
        versions,
    )
    from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers, firmware, licence

    from gpusetup.model.facts import HostFacts
    from gpusetup.model.stack import DriverChoice
else:
    drift, driver, gpudirect, mig, names, record_form, versions = (
        host_code(f"gpu_judge.{part}")
        for part in ("drift", "driver", "gpudirect", "mig", "names", "record_form", "versions")
    )
    containers, firmware, licence = (host_code(f"gpu_probe.{part}") for part in ("containers", "firmware", "licence"))

__all__ = [
    "Judged",
    "containers",
    "drift",
    "driver",
    "firmware",
    "gpudirect",
    "judged",
    "licence",
    "mig",
    "names",
    "probed",
    "record",
    "record_form",
    "versions",
    "wish",
]


def probed(facts: HostFacts) -> dict[str, Any]:
    """Return facts as plain data, as the probe reported them, without package candidates: no rule reads those."""
    packages = msgspec.structs.replace(facts.packages, candidates=None)
    document: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(facts, packages=packages))
    return document


def record(facts: HostFacts) -> dict[str, Any]:
    """Return the host's record as plain data; {} if there is none."""
    document: dict[str, Any] = msgspec.to_builtins(facts.state) if facts.state is not None else {}
    return document


def wish(choice: DriverChoice) -> driver.Wish:
    """Return a chosen driver in the form that the rules take."""
    return driver.Wish(choice.version, choice.module)


class Judged(NamedTuple):
    """A host's facts as structs and as plain data, and its record as plain data."""

    facts: HostFacts
    probed: dict[str, Any]
    record: dict[str, Any]


def judged(facts: HostFacts) -> Judged:
    """Return a host in both forms, converted once for all rules."""
    return Judged(facts, probed(facts), record(facts))
