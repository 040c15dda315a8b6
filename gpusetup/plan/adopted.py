"""The interpreter that a person has already: gpusetup uses it and installs nothing into it unasked.

Apart from the questions that a host puts, because a lookup needs it and must not pay for what is known of hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts, Python
    from gpusetup.model.settings import Settings

__all__ = ["adopted_python", "installed_version"]

_ADOPTED = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow",),
    "jax": ("jax",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
}


def adopted_python(facts: HostFacts, settings: Settings) -> Python | None:
    """Return the interpreter that was named for adoption, as the probe found it."""
    if not settings.python_adopt:
        return None
    return next((python for python in facts.pythons if python.path == settings.python_adopt), None)


def installed_version(python: Python, component: str) -> str | None:
    """Return the version of a framework in an interpreter."""
    return next((python.packages[name] for name in _ADOPTED.get(component, ()) if name in python.packages), None)
