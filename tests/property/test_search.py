"""The search against looking at every assignment, on random constraint problems."""

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpusetup.resolve.search import Pair, Problem, Unary, bits, minimal_conflict

NAMES = "abcd"


@st.composite
def problems(draw):
    """Return sizes, and constraints together with the plain sets of values that they allow."""
    sizes = {name: draw(st.integers(1, 4)) for name in NAMES[: draw(st.integers(1, 4))]}
    constraints: list[Unary | Pair] = []
    plain: list[Any] = []
    for number in range(draw(st.integers(0, 6))):
        scope = draw(st.permutations(sorted(sizes)))[: draw(st.integers(1, 2))]
        everything = list(itertools.product(*(range(sizes[name]) for name in scope)))
        allowed = set(draw(st.lists(st.sampled_from(everything), unique=True)))
        if len(scope) == 1:
            constraints.append(Unary(f"u{number}", scope[0], sum(1 << value for (value,) in allowed)))
        else:
            sides = [(name, {value: 1 << value for value in range(sizes[name])}) for name in scope]
            constraints.append(Pair(f"p{number}", *sides, lambda one, other, allowed=allowed: (one, other) in allowed))
        plain.append((tuple(scope), allowed))
    return sizes, constraints, plain


def solutions(sizes, plain):
    """Return every assignment that keeps the plain constraints."""
    names = list(sizes)
    return {
        values
        for values in itertools.product(*(range(sizes[name]) for name in names))
        if all(tuple(values[names.index(name)] for name in scope) in allowed for scope, allowed in plain)
    }


@given(problems())
def test_satisfiable_exactly_when_an_assignment_exists(problem):
    sizes, constraints, plain = problem
    expected = solutions(sizes, plain)
    made = Problem(sizes, constraints)
    assert made.satisfiable() == bool(expected)
    found = made.solve(made.initial())
    assert (found is None) == (not expected)
    if found is not None:
        assert all(mask.bit_count() == 1 for mask in found.values())
        assert tuple(mask.bit_length() - 1 for mask in found.values()) in expected


@given(problems())
def test_arc_consistency_drops_no_value_of_a_solution(problem):
    sizes, constraints, plain = problem
    expected = solutions(sizes, plain)
    domains = Problem(sizes, constraints).initial()
    for position, name in enumerate(sizes):
        needed = {values[position] for values in expected}
        assert needed <= (set(bits(domains[name])) if domains is not None else set())


@given(problems(), st.integers(0, 3))
def test_restricting_one_variable(problem, value):
    sizes, constraints, plain = problem
    name = next(iter(sizes))
    made = Problem(sizes, constraints)
    domains = made.initial()
    found = None if domains is None else made.solve(made.restrict(domains, name, 1 << value))
    assert (found is not None) == any(values[0] == value for values in solutions(sizes, plain))


@given(problems())
def test_a_conflict_is_one_and_no_member_is_idle(problem):
    sizes, constraints, plain = problem
    if solutions(sizes, plain):
        return
    members = minimal_conflict(Problem(sizes, constraints))
    kept = [plain[constraints.index(member)] for member in members]
    assert not solutions(sizes, kept)
    for left_out in range(len(kept)):
        assert solutions(sizes, kept[:left_out] + kept[left_out + 1 :])
