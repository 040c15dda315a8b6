"""Exact search over finite domains: arc consistency on bit masks, then depth-first search.

A variable's domain is an integer whose bit i is set while value i is possible. A constraint either allows some values
of one variable (`Unary`) or relates two variables (`Pair`). A pair compares groups of equivalent values, so relating
a hundred drivers to seventy toolkits takes a handful of comparisons.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Domains = dict[str, int]


def bits(mask: int) -> Iterable[int]:
    """Return the positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Unary:
    """Allows some values of one variable; `origin` is `request` when the request asked for it, else `rule`."""

    __slots__ = ("allowed", "origin", "rule", "scope", "subject")

    def __init__(self, rule: str, variable: str, allowed: int, *, subject: Any = None, origin: str = "rule") -> None:
        self.rule = rule
        self.scope = (variable,)
        self.allowed = allowed
        self.subject = subject
        self.origin = origin


class Pair:
    """Relates two variables: values with equal keys are equivalent, and `test` compares two keys."""

    __slots__ = ("groups", "masks", "origin", "rule", "scope", "subject")

    def __init__(
        self,
        rule: str,
        first: tuple[str, dict[Any, int]],
        second: tuple[str, dict[Any, int]],
        test: Callable[[Any, Any], bool],
        *,
        subject: Any = None,
    ) -> None:
        self.rule = rule
        self.scope = (first[0], second[0])
        self.subject = subject
        self.origin = "rule"
        self.groups = (list(first[1].items()), list(second[1].items()))
        forward, backward = [0] * len(self.groups[0]), [0] * len(self.groups[1])
        for i, (one, mine) in enumerate(self.groups[0]):
            for j, (other, theirs) in enumerate(self.groups[1]):
                if test(one, other):
                    forward[i] |= theirs
                    backward[j] |= mine
        self.masks = (forward, backward)

    def revise(self, domains: Domains, side: int) -> int:
        """Return one side's domain without the values that have no partner on the other side."""
        mine, other = domains[self.scope[side]], domains[self.scope[1 - side]]
        keep = 0
        for (_, group), partners in zip(self.groups[side], self.masks[side], strict=True):
            if group & mine and partners & other:
                keep |= group
        return mine & keep


Constraint = Unary | Pair


class Problem:
    """Variables and constraints; finds whether a solution exists, and one solution."""

    def __init__(self, sizes: dict[str, int], constraints: Sequence[Constraint]) -> None:
        self.sizes = sizes
        self.constraints = tuple(constraints)
        self._pairs: dict[str, list[tuple[Pair, int]]] = {variable: [] for variable in sizes}
        for constraint in constraints:
            if isinstance(constraint, Pair):
                # When this variable shrinks, revise the other side.
                self._pairs[constraint.scope[0]].append((constraint, 1))
                self._pairs[constraint.scope[1]].append((constraint, 0))

    def initial(self) -> Domains | None:
        """Return the domains after unary constraints and arc consistency; None when one becomes empty."""
        domains = {variable: (1 << size) - 1 for variable, size in self.sizes.items()}
        for constraint in self.constraints:
            if isinstance(constraint, Unary):
                domains[constraint.scope[0]] &= constraint.allowed
        if not all(domains.values()):
            return None
        return self.propagate(domains, list(domains))

    def propagate(self, domains: Domains, changed: list[str]) -> Domains | None:
        """Make the domains arc consistent in place, from the changed variables on; None when one becomes empty."""
        while changed:
            variable = changed.pop()
            for pair, side in self._pairs[variable]:
                target = pair.scope[side]
                remaining = pair.revise(domains, side)
                if remaining == domains[target]:
                    continue
                if not remaining:
                    return None
                domains[target] = remaining
                if target not in changed:
                    changed.append(target)
        return domains

    def restrict(self, domains: Domains, variable: str, mask: int) -> Domains | None:
        """Return new consistent domains with the variable limited to the mask, or None."""
        limited = domains[variable] & mask
        if not limited:
            return None
        if limited == domains[variable]:
            return domains
        return self.propagate({**domains, variable: limited}, [variable])

    def solve(self, domains: Domains | None) -> Domains | None:
        """Return one solution inside the domains (one bit per mask), or None."""
        if domains is None:
            return None
        open_variables = [variable for variable, mask in domains.items() if mask & (mask - 1)]
        if not open_variables:
            return domains
        variable = min(open_variables, key=lambda name: domains[name].bit_count())
        for value in bits(domains[variable]):
            solution = self.solve(self.restrict(domains, variable, 1 << value))
            if solution is not None:
                return solution
        return None

    def satisfiable(self) -> bool:
        """Return whether any solution exists."""
        return self.solve(self.initial()) is not None

    def with_constraint(self, extra: Constraint) -> "Problem":
        """Return a copy of the problem with one more constraint."""
        return Problem(self.sizes, (*self.constraints, extra))


def _worth_saying(constraint: Constraint) -> int:
    """Rank how much a constraint tells a reader; the conflict drops low ranks first."""
    if constraint.origin == "request":
        return 3
    if constraint.subject is not None:
        return 2
    return 1 if isinstance(constraint, Pair) else 0


def minimal_conflict(problem: Problem) -> Sequence[Constraint]:
    """Return a minimal set of constraints that cannot hold together, of a problem without a solution.

    Each constraint in turn is removed, for good if the rest still has no solution.
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
