"""Choose the engine by its name, with its settings from the command line."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusetup.drive.engines.base import Engine

ENGINES = ("ansible", "slurm")

ELSEWHERE = {"awx": ("AWX runs gpusetup, not gpusetup AWX", "gpusetup export handover awx --out awx-handover")}
"""Names that are not engines: why, and the command to use instead."""


def engine_of(name: str, options: Sequence[str] = ()) -> Engine:
    """Return the engine of this name; `options` are its settings, each NAME=VALUE."""
    if name in ELSEWHERE:
        why, command = ELSEWHERE[name]
        raise BadInputError("GS-964", f"{name} is no engine: {why}", path="--engine", hint=command)
    kind = _kind(name)
    known = {field.name.replace("_", "-"): field.name for field in fields(kind)}
    told: dict[str, str] = {}
    for option in options:
        word, mark, value = option.partition("=")
        if word not in known or not mark:
            takes = ", ".join(f"{setting}=VALUE" for setting in known)
            raise BadInputError(
                "GS-416", f"the engine {name} does not take {option!r}", path="--engine-option",
                hint=f"it takes {takes}" if takes else "leave it out: it has no settings",
            )  # fmt: skip
        told[known[word]] = value
    engine: Engine = kind(**told)
    return engine


def _kind(name: str) -> Any:
    """Return the class of an engine; import only that one."""
    if name == "slurm":
        from gpusetup.drive.engines.slurm import Slurm

        return Slurm
    from gpusetup.drive.engines.base import Ansible

    return Ansible
