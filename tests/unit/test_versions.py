"""NVIDIA versions keep their text and order by number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from gpusetup.versions import NvVersion, cuda_minor, named_exactly, nv

numbers = st.lists(st.integers(0, 9999), min_size=1, max_size=5)
texts = numbers.map(lambda found: ".".join(map(str, found)))


def padded(text):
    found = [int(part) for part in text.split(".")]
    return tuple(found + [0] * (8 - len(found)))


def test_text_is_kept():
    assert str(nv("550.144.03")) == "550.144.03"
    assert repr(nv("550.144.03")) == "NvVersion('550.144.03')"
    assert nv("550.144.03") == nv("550.144.3")
    assert hash(nv("12.4")) == hash(nv("12.4.0"))


def test_order_is_by_number_not_by_letter():
    assert sorted(["12.10", "12.9", "9.2", "12.1"], key=nv) == ["9.2", "12.1", "12.9", "12.10"]
    assert nv("580.65.06") < nv("580.178.04")


@pytest.mark.parametrize(
    "text", ["", "abc", "12.", ".4", "12..4", "12.4rc1", "-1", "12 ", "12\n", "٥٣٥", "9" * 40, "v12.4"]
)
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match="not an NVIDIA version"):
        NvVersion(text)


@given(texts, texts)
def test_order_is_that_of_padded_numbers(one, other):
    first, second = nv(one), nv(other)
    assert (first < second) == (padded(one) < padded(other))
    assert (first <= second) == (padded(one) <= padded(other))
    assert (first > second) == (padded(one) > padded(other))
    assert (first >= second) == (padded(one) >= padded(other))
    assert (first == second) == (padded(one) == padded(other))
    if first == second:
        assert hash(first) == hash(second)


@given(texts)
def test_text_survives(text):
    assert str(nv(text)) == text
    assert nv(text).major == int(text.split(".", maxsplit=1)[0])
    assert nv(text).minor == padded(text)[:2]


def test_compared_with_something_else():
    assert nv("12.4") != "12.4"


few = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(lambda found: ".".join(map(str, found)))


@given(few, few, st.sampled_from(["", ".*"]))
def test_what_is_named_exactly_is_what_packaging_says(wanted, version, end):
    assert named_exactly(f"=={wanted}{end}", version) is SpecifierSet(f"=={wanted}{end}").contains(version)
    other = (f">={wanted}", version), (f"=={wanted}{end}", f"{version}rc1"), (f"=={wanted},<9", version)
    assert [named_exactly(*pair) for pair in other] == [None] * 3


def test_cuda_minor():
    assert [cuda_minor(text) for text in ("12.4.1", "12.4", "13", "12.10.0")] == ["12.4", "12.4", "13", "12.10"]
