"""Sizes of batches."""

import pytest

from gpusetup.errors import BadInputError
from gpusetup.rollout.batches import batches

TWENTY = tuple(f"n{number}" for number in range(20))


def sizes(spec, names=TWENTY):
    found = batches(names, spec)
    assert tuple(name for batch in found for name in batch) == names, "every host once, in order"
    return [len(batch) for batch in found]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("", [20]), ("1,10%,50%", [1, 2, 10, 7]), ("8", [8, 8, 4]), ("1%", [1] * 20), ("100%", [20]), ("1, 100", [1, 19])],
)
def test_sizes(spec, expected):
    assert sizes(spec) == expected


def test_no_hosts_no_batches():
    assert batches((), "1,10%") == []


@pytest.mark.parametrize("spec", ["0", "0%", "101%", "-1", "x", "1,", "1.5", "٣", "1,,2"])
def test_what_is_no_size_is_bad_input(spec):
    with pytest.raises(BadInputError) as stopped:
        batches(TWENTY, spec)
    assert stopped.value.reference == "GS-806"
