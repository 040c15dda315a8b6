"""The row of `matrix` that `resolve` takes has a mark, and a word on why it is not the newest."""

import json

import pytest

from gpusetup.matrix.load import matrix


def _said(says, *words):
    """Return what is said before the day of the matrix, with which each answer ends."""
    said, mark, day = says(0, "matrix", *words).rpartition(" matrix of ")
    assert (mark, day) == (" matrix of ", str(matrix().date))
    return said


@pytest.mark.parametrize(
    ("words", "mark", "reason"),
    [
        ("cuda driver==580.*", "13.0.2 * Update 2", "not CUDA 13.5.0: it is not native to R580; request it with cuda==13.5.0"),
        ("torch driver<590", "2.15.0 * cu130", "cu130 is native to R580; the build on PyPI, cu132, is not"),
        ("torch --driver 535.309.01", "2.14.0 * cu126", "not torch 2.14.1+cu126: it is known from secondary sources only"),
    ],
)  # fmt: skip
def test_the_chosen_row_is_marked_and_says_why(says, words, mark, reason):
    said = _said(says, *words.split())
    assert mark in said
    version = mark.partition(" ")[0]
    assert said.endswith(f"* {version} is what `gpusetup resolve` chooses; {reason}")


def test_the_newest_row_needs_no_reason_and_one_row_no_mark(says):
    assert _said(says, "cupy").endswith("* 14.2.0 is what `gpusetup resolve` chooses")
    assert "*" not in _said(says, "torch==2.6.*", "--arch", "aarch64")


def test_documents_name_the_chosen_row(says):
    rows = json.loads(says(0, "matrix", "cuda", "driver==580.*", "--format", "json"))["rows"]
    assert [row["chosen"] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert rows[0]["because"].startswith("not CUDA ")


def test_a_table_that_is_shortened_names_the_command_for_all_of_it(says):
    assert _said(says, "--driver", "535.154.05").endswith("all of them: gpusetup matrix cuda --driver 535.154.05")
