"""Errors as tests expect them: their reference, and words that one of their fields has."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(error, reference, match=None, **said):
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert caught.value.reference == reference
    for field, words in said.items():
        assert words in getattr(caught.value, field), field
