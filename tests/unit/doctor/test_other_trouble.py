"""Texts in which no cause is found: what they are about instead, and logs that are healthy."""

import hashlib
import json
import re

import msgspec
import pytest

from gpusetup.doctor.catalogue import read_table
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.other_trouble import outside, routine
from gpusetup.doctor.scan import foreign
from gpusetup.model.diagnosis import OutsideFile
from tests.unit.doctor.score import WORDINGS, entries


@pytest.mark.parametrize(("text", "kind"), WORDINGS["of another trouble"])
def test_the_kind_of_trouble_is_told(text, kind):
    assert [one.id for one in outside(text)] == [kind]


@pytest.mark.parametrize("text", WORDINGS["of nothing known"])
def test_nothing_is_told_where_one_line_may_be_the_installations(text):
    assert outside(text) == ()


def test_a_line_of_code_in_a_traceback_is_no_trouble_of_its_own():
    frames = '  File "a.py", line 1, in f\n    frobnication_failed()\n'
    assert [one.id for one in outside(f"Traceback (most recent call last):\n{frames}ValueError: x")] == ["program"]


def test_the_answer_is_plain_and_ends_with_0(doctor):
    answer = doctor(0, "ssh: connect to host node7 port 22: Connection refused")
    assert answer.startswith("no fault of the GPU installation in this text")
    assert "SSH does not let you in" in answer
    told = json.loads(doctor(0, "--format", "json", "error: externally-managed-environment"))
    assert told["recognised"] is False
    assert [one["id"] for one in told["outside"]] == ["python-packages"]
    assert "send" not in told


def test_an_unknown_message_without_a_word_of_the_gpu_gets_a_next_step(doctor):
    assert "begin with the program" in doctor(3, "frobnication failed: 42")
    assert "begin with the program" not in doctor(3, "nvidia frobnication failed: 42")


def test_a_log_with_routine_lines_is_healthy(doctor):
    log = "RAS: Correctable Errors collector initialized.\nGPU burn: 0 errors\nEXT4-fs (sda1): re-mounted. errors=remount-ro\n"
    assert doctor(0, "--text", "-", given=log).startswith("healthy:")
    assert routine(outside(log))
    assert not routine(())


def test_five_errors_are_not_none():
    log = "step\n" * 60 + "GPU burn: 5 errors\n"
    assert not outside(log)
    assert routine(outside(log.replace("5 errors", "0 errors")))
    assert outside("Steam\n" * 60) == ()


def test_a_kernel_that_killed_a_program_is_not_called_healthy_and_a_long_log_not_judged_by_its_lines(doctor):
    assert "The host's memory ran out" in doctor(0, "--text", "-", given="node invoked oom-killer: gfp_mask=0xcc0\n")
    doctor(3, "--text", "-", given="KeyError: 'a'\n" * 30_000)


def test_every_kind_has_an_expression_of_its_own():
    kinds = msgspec.json.decode(read_table("outside.json"), type=OutsideFile).kinds
    assert len({kind.id for kind in kinds}) == len(kinds)
    assert all(re.compile(kind.regex).search("") is None for kind in kinds)


@pytest.mark.parametrize(("area", "line", "other"), WORDINGS["of other software"])
def test_other_software_is_told_by_its_words(area, line, other):
    assert foreign(area, line) is other


def test_the_threads_were_split_by_their_hash():
    for name, rest in (("threads_open", 0), ("threads_closed", 1)):
        assert all(hashlib.sha256(one["thread"].encode()).digest()[-1] % 2 == rest for one in entries(name))


def test_the_trouble_of_others_is_seldom_told_for_a_cause():
    texts = [one["text"] for name in ("threads_open", "heldout") for one in entries(name) if one["cause"]]
    mistaken = [text for text in texts if outside(text) and not diagnose_text(text)]
    assert not mistaken
