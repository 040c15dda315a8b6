"""The resolver against an oracle that looks at every assignment, and the laws of `laws.py` on a sample of questions."""

import random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gpusetup.resolve.constraints import build
from gpusetup.resolve.preferences import best
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
