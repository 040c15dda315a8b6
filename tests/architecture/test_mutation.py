"""The tool that breaks the core: which places it finds, and that live functions get the broken code and nothing else."""

import importlib

import pytest

from tests import mutation

TEXT = """
LIMIT = 3

def judged(there: int = 2) -> bool:
    "What is said of a number."
    if there >= LIMIT and not there == 7:
        noted(there)
        return True
    return None

def noted(number):
    SEEN.append(number)

class Judge:
    def known(self):
        return [number for number in SEEN if number in (4, 5)]

SEEN = []
"""


@pytest.fixture
def core(tmp_path, monkeypatch):
    (tmp_path / "core").mkdir()
    (tmp_path / "core/broken_here.py").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "core"))
    return mutation.Core("core")


def test_the_places_are_those_inside_functions(core):
    assert {(place.was, place.broken) for place in core.places()} == {
        ("there >= LIMIT and (not there == 7)", "there >= LIMIT or not there == 7"),
        ("there >= LIMIT", "there > LIMIT"),
        ("not there == 7", "there == 7"),
        ("there == 7", "there != 7"),
        ("7", "8"),
        ("noted(there)", "pass"),
        ("return True", "return None"),
        ("True", "False"),
        ("SEEN.append(number)", "pass"),
        ("return [number for number in SEEN if number in (4, 5)]", "return None"),
        ("number in (4, 5)", "number not in (4, 5)"),
        ("4", "5"),
        ("5", "6"),
    }


def test_a_place_changes_its_function_alone_and_its_text_stays_whole(core):
    module = importlib.import_module("broken_here")
    for place in core.places():
        if (place.was, place.broken) == ("there >= LIMIT", "there > LIMIT"):
            assert module.judged(3) is True
            assert mutation.put_in(place) == 1
    assert module.judged(3) is None
    assert module.judged(4) is True
    assert module.SEEN == [3, 4]
    assert module.Judge().known() == [4]


def test_functions_note_that_they_were_entered_by_whatever_name(core):
    (path,) = core.files
    scope: dict[str, object] = {}
    exec(core.noting(path, path), scope)
    assert core.entered == set()
    scope["noted"](1)
    assert {name for _path, name, _line in core.entered} == {"noted"}


def test_a_copy_that_never_ends_is_ended(monkeypatch):
    def work(tell):
        tell(["begun"])
        while True:
            pass

    assert mutation._copy(work, 0.5) == ([["begun"]], False)
    assert mutation._copy(lambda tell: tell([1]), 30) == ([[1]], True)
