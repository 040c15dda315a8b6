"""What the sentences of rules may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpusetup.resolve.domains import Value
    from gpusetup.resolve.space import Space

__all__ = ["Context"]


class Context(Protocol):
    """What a sentence may look at; `candidate` is the component whose one candidate is judged, else empty."""

    space: Space
    candidate: str

    def values(self, component: str) -> list[Value]:
        """Return the values of a component that are left."""

    def narrow(self, component: str) -> bool:
        """Tell whether something narrows the component down."""
