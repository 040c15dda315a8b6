"""What newer rows do to answers is said, and rows that make answers contradict each other are found."""

import json
from functools import partial, wraps

import pytest

from gpusetup.matrix.load import Matrix
from tests.tools.refresh.published import MATRIX, documents, newest
from tools.refresh.judging import changed, new_breaches
from tools.refresh.laws import Laws


@pytest.fixture
def with_cudnn(tmp_path):
    """The shipped matrix with one release of cuDNN more."""

    def more(version):
        document = documents()["cudnn"]
        last = next(row for row in document["releases"] if row["version"] == newest("cudnn"))
        document["releases"].append(last | {"version": version})
        (tmp_path / "cudnn.json").write_text(json.dumps(document))
        return Matrix(tmp_path)

    return more


def test_the_same_matrix_changes_nothing():
    assert list(changed(MATRIX, Matrix())) == []
    assert new_breaches(MATRIX, Matrix()) == []


def test_every_answer_that_changes_is_counted_with_one_of_its_questions(with_cudnn):
    (told,) = changed(MATRIX, with_cudnn("9.99.0.7"))
    assert told.startswith(f"cudnn {newest('cudnn')} -> 9.99.0.7: ")
    assert "of 200 questions, such as: gpusetup resolve" in told


def test_a_law_that_new_rows_break_is_found_and_one_that_was_broken_before_is_not(with_cudnn, monkeypatch):
    """No row that lints allow is known to break a law, so two laws are made up for it."""

    def nobody_gets_a_new_cudnn(laws, request):
        given = laws.answer(request)
        if given is not None and given.stack.cudnn is not None and given.stack.cudnn.version == "9.99.0.7":
            yield "a new cuDNN is given"

    def nobody_gets_any(laws, request):
        if laws.answer(request) is not None:
            yield "a stack is given"

    monkeypatch.setattr(Laws, "all", lambda laws: tuple(
        wraps(law)(partial(law, laws)) for law in (nobody_gets_a_new_cudnn, nobody_gets_any)
    ))  # fmt: skip
    broken = new_breaches(MATRIX, with_cudnn("9.99.0.7"))
    assert broken
    assert {text.partition(":")[0] for text in broken} == {"nobody_gets_a_new_cudnn"}
