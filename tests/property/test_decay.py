"""Slow decay is found, and noise, outliers, steps and waves are not taken for it."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusetup.verify.baseline import FEWEST, Series, decay_of, decay_result

Noise = Callable[[random.Random], float]
NOISES: dict[str, Noise] = {
    "normal": lambda dice: dice.gauss(0, 1),
    "uniform": lambda dice: dice.uniform(-1.7, 1.7),
    "skewed": lambda dice: -dice.expovariate(1.0),
    "outliers": lambda dice: dice.gauss(0, 1) if dice.random() < 0.9 else dice.uniform(-30, 0),
}


def series(values, unit="GB/s"):
    points = tuple((86400.0 * number, value) for number, value in enumerate(values))
    return Series(check="memory.copy", subject="GPU 0", unit=unit, points=points)


@pytest.mark.parametrize("kind", NOISES)
def test_noise_is_never_a_finding(kind):
    dice = random.Random(18)
    cried = 0
    for _ in range(1500):
        runs, flutter = dice.randint(FEWEST, 40), dice.choice((0.001, 0.005, 0.02, 0.05))
        cried += decay_of(series([4000 * max(0.05, 1 + flutter * NOISES[kind](dice)) for _ in range(runs)])) is not None
    assert cried == 0


def test_noise_that_remembers_itself_is_no_finding():
    """A machine room's week: each run resembles the one before."""
    dice = random.Random(7)
    for _ in range(500):
        drift, values = 0.0, []
        for _ in range(dice.randint(FEWEST, 60)):
            drift = 0.8 * drift + dice.gauss(0, 0.004)
            values.append(4000 * (1 + drift))
        assert decay_of(series(values)) is None


@given(runs=st.integers(15, 200), fall=st.floats(0.06, 0.5), flutter=st.floats(0.0, 0.004), seed=st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_a_steady_fall_is_found_with_its_figures(runs, fall, flutter, seed):
    dice = random.Random(seed)
    values = [4000 * (1 - fall * n / (runs - 1)) * (1 + flutter * dice.gauss(0, 1)) for n in range(runs)]
    for found, sign in ((decay_of(series(values)), -1), (decay_of(series([1e6 / v for v in values], "µs")), 1)):
        assert found is not None
        assert 0.5 * fall < found.share < 1.1 * fall + 0.02
        assert math.copysign(1, found.now - found.before) == sign


@given(before=st.integers(6, 60), after=st.integers(6, 60), drop=st.floats(0.03, 0.5), seed=st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_a_step_and_a_rise_are_no_decay(before, after, drop, seed):
    """A step is what another driver or another board does; the baseline finds it."""
    dice = random.Random(seed)
    values = [4000 * (1 + 0.002 * dice.gauss(0, 1)) for _ in range(before)]
    values += [4000 * (1 - drop) * (1 + 0.002 * dice.gauss(0, 1)) for _ in range(after)]
    assert decay_of(series(values)) is None
    assert decay_of(series(sorted(values))) is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_anything_may_be_in_the_file(values):
    decay_of(series(values))


def test_too_few_runs_say_nothing():
    falling = [4000 - 50.0 * number for number in range(FEWEST)]
    assert decay_result([series(falling[:-1])]) is None
    result = decay_result([series(falling)])
    assert result is not None
    assert (result.verdict, result.items[0].subject) == ("warn", "memory.copy GPU 0")
    fine = decay_result([series([4000.0] * FEWEST)])
    assert fine is not None
    assert (fine.verdict, fine.items) == ("pass", ())
