"""The resolver against an oracle that looks at every assignment, and the laws of `laws.py` on a sample of questions."""

import random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gpusetup.resolve.constraints import build
from gpusetup.resolve.preferences import best
from gpusetup.resolve.search import Pair, Unary, bits, minimal_conflict
from tests.property.laws import ALL, MATRIX
from tests.property.oracle import Oracle
from tests.property.worlds import questions
from tools.refresh.questions import question, spelled

MARKS = ("version", "module", "row", "build", "variant", "extra", "package", "cuda_major")


def marks(one):
    """Return what tells a candidate from every other, whether the resolver or the oracle made it."""
    record = getattr(one, "release", None)
    found = [getattr(one, name, None) or getattr(record, name, None) for name in MARKS]
    found[4] = getattr(getattr(one, "build", None), "variant", None)
    return tuple(found)


def stack(assignment):
    return {name: marks(one) for name, one in assignment.items()}


@given(questions())
def test_same_answer_as_looking_at_every_assignment(question):
    matrix, request = question
    found = best(build(matrix, request))
    expected = Oracle(matrix, request).best()
    event("a stack" if expected else "no stack")
    if found is None:
        assert not expected
        return
    assert stack(found) in [stack(assignment) for assignment in expected]
    # What no preference tells apart must look alike to people: the answer does not depend on the order of the data.
    assert len({tuple(one.version for one in assignment.values()) for assignment in expected}) == 1


def holds_together(space, members):
    """Tell by looking at every assignment whether some constraints can hold together."""
    names = list(dict.fromkeys(name for member in members for name in member.scope))
    found: list[dict[str, int]] = [{}]
    for name in names:
        allowed = (1 << len(space.values[name])) - 1
        for member in members:
            if isinstance(member, Unary) and member.scope == (name,):
                allowed &= member.allowed
        found = [{**one, name: index} for one in found for index in bits(allowed)]
        found = [one for one in found if all(related(member, one) for member in members if isinstance(member, Pair))]
    return bool(found)


def related(member, one):
    first, second = (one.get(name) for name in member.scope)
    if first is None or second is None:
        return True
    return any(
        group >> first & 1 and partners >> second & 1
        for (_, group), partners in zip(member.groups[0], member.masks[0], strict=True)
    )


@given(questions())
def test_conflicts_are_conflicts_and_minimal(question):
    matrix, request = question
    space = build(matrix, request)
    if space.problem().satisfiable():
        return
    members = minimal_conflict(space.problem())
    event(f"{len(members)} members")
    assert not holds_together(space, members)
    for left_out in members:
        assert holds_together(space, [member for member in members if member is not left_out])


SAMPLE = 150


@pytest.mark.parametrize("law", ALL.all(), ids=lambda law: law.__name__)
def test_no_question_breaks_a_law(law):
    chance = random.Random(20261120)
    broken = [(spelled(asked), list(law(asked))) for asked in (question(chance, MATRIX) for _ in range(SAMPLE))]
    assert not [(asked, texts) for asked, texts in broken if texts]


@given(st.randoms(use_true_random=False))
def test_no_question_that_hypothesis_finds_breaks_a_law(chance):
    asked = question(chance, MATRIX)
    assert not ALL.breaches(asked), spelled(asked)
