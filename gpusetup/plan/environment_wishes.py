"""Read `gpusetup_environments`: names, and for each what is asked for, in the words of the command line."""

from __future__ import annotations

import json
import re
from typing import Any

from gpusetup.errors import BadInputError
from gpusetup.model.environment import EnvironmentWish
from gpusetup.model.request import PACKAGES, Requirement
from gpusetup.resolve.requests import parse_requirements

__all__ = ["environment_wishes"]

_FORM = "{serve: [vllm==0.19.*], train: [torch==2.11.*, deepspeed]}"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?")
_HOLDS = (*PACKAGES, "torch", "tensorflow", "jax", "cupy")
_SHARED = ("driver", "cuda", "cudnn", "nccl")
"""What a host has once, or what comes with a framework's wheels."""


def environment_wishes(value: Any, label: str) -> tuple[EnvironmentWish, ...]:
    """Return the environments in the order of their names; raises before anything is touched."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError:
            raise _wrong(label, f"{value!r} is not a mapping of names to lists") from None
    if not isinstance(value, dict):
        raise _wrong(label, f"{value!r} is not a mapping of names to lists")
    for name in value:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(
                f"{label}[{name}]",
                f"{str(name)!r} cannot name an environment: its folder is called after it",
                "use 1 to 32 lower-case letters, digits, - and _, such as serve or train-2",
            )
    return tuple(
        EnvironmentWish(name=name, requirements=_requirements(value[name], f"{label}[{name}]"))
        for name in sorted(value)
    )


def _requirements(value: Any, label: str) -> tuple[Requirement, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise _wrong(label, f"{value!r} is not a list of requirements")
    try:
        found = parse_requirements(list(words))
    except BadInputError as error:
        raise BadInputError(
            error.reference, f"{label}: {error.message}", path=label, note=error.note, hint=error.hint
        ) from None
    for item in found:
        if item.component in _SHARED:
            way = f"set gpusetup_{item.component} for the host"
            raise _wrong(label, f"{item.component} does not belong in an environment", way)
    if not any(item.component in _HOLDS for item in found):
        raise _wrong(label, "it asks for nothing that lives in an environment")
    return found


def _wrong(label: str, message: str, hint: str = "") -> BadInputError:
    return BadInputError("GS-377", f"{label}: {message}", path=label, hint=hint or f"for example {_FORM}")
