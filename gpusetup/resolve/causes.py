"""Why nothing fits: the smallest set of rules and wishes that cannot hold together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.resolve.search import Pair, Problem, Unary

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["minimal_conflict"]

Constraint = Unary | Pair


def _worth_saying(constraint: Constraint) -> int:
    """Rank how much a constraint tells a person: what tells least is dropped first."""
    if constraint.origin == "request":
        return 3
    if constraint.subject is not None:
        return 2
    return 1 if isinstance(constraint, Pair) else 0


def minimal_conflict(problem: Problem) -> Sequence[Constraint]:
    """Return constraints that cannot hold together, none of which can be left out; the problem has no solution.

    Deletion: every constraint in turn is left out, for good if the rest still refutes.
    """
    kept = sorted(problem.constraints, key=_worth_saying)
    index = 0
    while index < len(kept):
        rest = kept[:index] + kept[index + 1 :]
        if Problem(problem.sizes, rest).satisfiable():
            index += 1
        else:
            kept = rest
    return sorted(kept, key=_worth_saying, reverse=True)
