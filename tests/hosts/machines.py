"""The captured machines of this folder, as facts."""

from functools import cache
from pathlib import Path

from gpusetup.facts.collect import captured, matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import HostFacts

HOSTS = Path(__file__).parent


@cache
def machine(name: str) -> HostFacts:
    return captured(HOSTS / name / "root", matrix_lookup(matrix()))
