"""Requirements that leave no choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.request import COMPONENTS, Requirement

if TYPE_CHECKING:
    from gpusetup.model.stack import Stack

__all__ = ["exact_requirements"]


def exact_requirements(stack: Stack) -> tuple[Requirement, ...]:
    """Return requirements that only this stack satisfies."""
    requirements = []
    for name in COMPONENTS:
        chosen = stack.part(name)
        if chosen is None or not chosen.version:
            continue
        variant = chosen.variant if name == "torch" else ""
        beside = tuple(f"=={other.version}" for other in stack.cudas) if name == "cuda" else ()
        requirements.append(
            Requirement(component=name, specifier=f"=={chosen.version}", variant=variant, beside=beside)
        )
    return tuple(requirements)
