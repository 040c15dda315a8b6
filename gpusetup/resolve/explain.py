"""The one writer of refusals: a conflict as plain sentences, each with its rule and its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.resolve.naming import rule_source
from gpusetup.resolve.search import Pair, Unary, bits
from gpusetup.resolve.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusetup.resolve.domains import Value
    from gpusetup.resolve.space import Space


class _Context:
    """The values that a sentence speaks of: what everything else in the conflict leaves of each component."""

    def __init__(self, space: Space, masks: Mapping[str, int], *, candidate: str = "") -> None:
        self.space = space
        self.candidate = candidate
        self._masks = masks

    def values(self, component: str) -> list[Value]:
        """Return the values of a component that are left; all when nothing is."""
        values = self.space.values[component]
        return [values[index] for index in bits(self._masks[component])] or list(values)

    def narrow(self, component: str) -> bool:
        """Tell whether something narrows the component down."""
        return 0 < self._masks[component].bit_count() < len(self.space.values[component])


def conflict(space: Space, members: Sequence[Unary | Pair]) -> list[dict[str, str]]:
    """Return a conflict as documents: rule, text, source."""
    told = []
    for member in members:
        others = [item for item in members if item is not member and isinstance(item, Unary)]
        text = sentence(_Context(space, _left(space, others)), member)
        source = "" if member.origin == "request" else rule_source(space.matrix, member.rule, member.scope)
        item = {"rule": member.rule, "text": text, "source": source}
        if item not in told:
            told.append(item)
    return told


def judged(space: Space, member: Unary | Pair, component: str, masks: Mapping[str, int]) -> str:
    """Say why a rule forbids one candidate of a component, when the rest of the stack is what the masks say."""
    return sentence(_Context(space, masks, candidate=component), member)


def _left(space: Space, members: Sequence[Unary]) -> dict[str, int]:
    """Return what these rules leave of each component; of one that they leave nothing of, everything."""
    masks = {name: (1 << len(values)) - 1 for name, values in space.values.items()}
    for member in members:
        masks[member.scope[0]] = masks[member.scope[0]] & member.allowed or masks[member.scope[0]]
    return masks
