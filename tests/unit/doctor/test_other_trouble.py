"""Texts in which no cause is found: what they are about instead, and logs that are healthy."""

import pytest

from gpusetup.doctor.other_trouble import outside, routine
from gpusetup.doctor.scan import foreign
from tests.unit.doctor.score import WORDINGS


@pytest.mark.parametrize(
    ("text", "kind"), [*WORDINGS["of another trouble"], *((text, "") for text in WORDINGS["of nothing known"])]
)
def test_the_kind_of_trouble_is_told_and_none_where_one_line_may_be_the_installations(text, kind):
    assert "".join(one.id for one in outside(text)) == kind


def test_a_line_of_code_in_a_traceback_is_no_trouble_of_its_own():
    frames = '  File "a.py", line 1, in f\n    frobnication_failed()\n'
    assert [one.id for one in outside(f"Traceback (most recent call last):\n{frames}ValueError: x")] == ["program"]


def test_an_unknown_message_without_a_word_of_the_gpu_gets_a_next_step(doctor):
    assert "begin with the program" in doctor(3, "frobnication failed: 42")
    assert "begin with the program" not in doctor(3, "nvidia frobnication failed: 42")


def test_a_log_with_routine_lines_is_healthy(doctor):
    log = "RAS: Correctable Errors collector initialized.\nGPU burn: 0 errors\nEXT4-fs (sda1): re-mounted. errors=remount-ro\n"
    assert doctor(0, "--text", "-", given=log).startswith("healthy:")
    assert routine(outside(log))
    assert not routine(())


def test_a_kernel_that_killed_a_program_is_not_called_healthy_and_a_long_log_not_judged_by_its_lines(doctor):
    assert "The host's memory ran out" in doctor(0, "--text", "-", given="node invoked oom-killer: gfp_mask=0xcc0\n")
    doctor(3, "--text", "-", given="KeyError: 'a'\n" * 30_000)


@pytest.mark.parametrize(("area", "line", "other"), WORDINGS["of other software"])
def test_other_software_is_told_by_its_words(area, line, other):
    assert foreign(area, line) is other
