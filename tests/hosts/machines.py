"""The captured machines of this folder, as facts."""

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpusetup.facts.collect import captured, matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import HostFacts

HOSTS = Path(__file__).parent
Struct = TypeVar("Struct", bound=msgspec.Struct)


@cache
def _captured(name: str) -> HostFacts:
    return captured(HOSTS / name / "root", matrix_lookup(matrix()))


def changed(struct: Struct, **parts: Any) -> Struct:
    """Return a struct with other parts; a mapping for a part that is a struct changes that one's."""
    for name, part in parts.items():
        there = getattr(struct, name)
        if isinstance(part, dict) and isinstance(there, msgspec.Struct):
            parts[name] = changed(there, **part)
    return msgspec.structs.replace(struct, **parts)


def machine(name: str, **parts: Any) -> HostFacts:
    return changed(_captured(name), **parts)
