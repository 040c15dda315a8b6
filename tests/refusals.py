"""Errors as tests expect them: their reference, and words that one of their fields has."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(error, reference=None, match=None, **said):
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert reference in (None, caught.value.reference)
    for field, words in said.items():
        assert words in getattr(caught.value, field), field
