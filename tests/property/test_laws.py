"""The laws of `laws.py` on a sample of random questions; `python -m tests.property.laws 20000` asks many more."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.laws import ALL, MATRIX
from tools.refresh.questions import question, spelled

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
