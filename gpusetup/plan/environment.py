"""The Python environment that a host has, against the lines of the requirements file that it is to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.plan import judge
from gpusetup.plan.compilers import limit_of, without_caps
from gpusetup.plan.recorded import record_of

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts, Python
    from gpusetup.model.settings import Settings

__all__ = ["environment_of", "lacking", "settled"]


def environment_of(facts: HostFacts, settings: Settings) -> Python | None:
    """Return the interpreter of the environment, None where there is none."""
    path = f"{settings.python_path}/bin/python"
    return next((python for python in facts.pythons if python.path in {path, f"{path}3"}), None)


def settled(lines: tuple[str, ...], facts: HostFacts, settings: Settings) -> tuple[str, ...]:
    """Return the lines that an environment is made of: what is on record stays where it differs in limits alone.

    Gigabytes are not fetched again for a limit that came with another gpusetup. It takes an upgrade, or a driver older
    than the one that the environment was made for, and a wheel beyond the limit.
    """
    applied = record_of(facts).lock.wanted
    recorded = applied.requirements if applied is not None else ()
    if without_caps(lines) != without_caps(recorded):
        return lines
    asked = settings.upgrade or any(limit_of(line) for line in recorded)
    there = _packages(environment_of(facts, settings))
    return lines if asked and any(_beyond(line, there) for line in lines) else recorded


def lacking(lines: tuple[str, ...], facts: HostFacts, settings: Settings) -> list[str]:
    """Return the lines that the environment does not fulfil."""
    wanted = [line for line in lines if not line.startswith("-")]
    have = environment_of(facts, settings)
    pins = judge.requirements.pins(wanted)
    left = record_of(facts).expect.python
    if have is not None and left is not None and left.path == settings.python_path and left.now is None:
        # Its record knows every package, the probe only the frameworks.
        there = {**_packages(have), **left.packages}
    else:
        there = _packages(have)
    pinned = {name for name, version in pins.items() if there.get(name) == version}
    return [line for line in wanted if _beyond(line, there) or not (limit_of(line) or _name(line) in pinned)]


def _name(line: str) -> str:
    return next(iter(judge.requirements.pins((line,))), "")


def _packages(python: Python | None) -> dict[str, str]:
    found = python.packages if python is not None else {}
    return {judge.names.python_name(name): version for name, version in found.items()}


def _beyond(line: str, there: dict[str, str]) -> bool:
    """Tell whether a package is there that a limit forbids."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    name, limit = limit_of(line) or ("", "")
    if name not in there:
        return False
    try:
        return not SpecifierSet(f"<{limit}").contains(there[name], prereleases=True)
    except InvalidVersion:
        return False
