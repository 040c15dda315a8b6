"""Errors say what, where, why and what to do; the gravest decides for a fleet."""

import itertools
import json

import pytest

from gpusetup import errors
from gpusetup.doctor import references
from gpusetup.errors import BadInputError, Exit, GpuSetupError, NoStackError, gravest

GRAVITY = [130, 1, 7, 8, 6, 5, 4, 3, 2, 9, 0]
"""As the contract orders the exits of a fleet."""


def test_the_gravest_exit_of_a_fleet():
    for graver, lighter in itertools.combinations(GRAVITY, 2):
        assert gravest([Exit(lighter), Exit(graver), Exit(lighter)]) == graver
    assert gravest([]) is Exit.DONE


def test_every_exit_has_its_gravity_and_a_code_of_another_release_is_a_failure():
    assert {*GRAVITY} == set(Exit)
    assert Exit(99) is Exit.FAILED


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("BadInputError", 3), ("NoStackError", 4), ("PreflightError", 5), ("UnreachableError", 6),
        ("HostFailedError", 7), ("VerifyFailedError", 8), ("GpuSetupError", 1),
    ],
)  # fmt: skip
def test_exit_codes(kind, code):
    assert getattr(errors, kind)("GS-000", "x").exit == code


def test_a_document_says_what_is_known_and_always_path_and_hint():
    document = BadInputError("GS-000", "no", note="because").to_document()
    assert document == {
        "schema": "gpusetup/error/1", "ok": False,
        "error": {"reference": "GS-000", "message": "no", "path": "", "note": "because", "hint": ""},
    }  # fmt: skip


def test_an_error_without_a_hint_has_what_helps_with_its_reference():
    assert BadInputError("GS-113", "x").hint == references.listed()["GS-113"].fix
    assert BadInputError("GS-113", "x", hint="y").hint == "y"


def test_a_file_name_that_is_not_utf8_still_makes_a_document():
    document = BadInputError("GS-111", "no", path="/tmp/\udcff").to_document()
    assert json.loads(json.dumps(document, ensure_ascii=False).encode())["error"]["path"] == "/tmp/\\udcff"


def test_a_refusal_carries_its_conflict():
    conflict = {"schema": "gpusetup/stack/1", "ok": False, "conflict": [], "suggestions": []}
    assert NoStackError("GS-210", "no", document=conflict).to_document() is conflict
    assert NoStackError("GS-210", "no").to_document()["error"]["reference"] == "GS-210"


def test_the_message_is_the_exceptions_text():
    assert str(GpuSetupError("GS-1", "what happened")) == "what happened"
