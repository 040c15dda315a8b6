"""Texts in which no cause is found: what they are about instead, the next steps, and logs that are healthy."""

import json
import re

import pytest

from gpusetup.doctor.next_steps import PIPE, next_steps, programs
from gpusetup.doctor.other_trouble import outside, routine
from gpusetup.doctor.scan import foreign
from tests.unit.doctor.score import FIXTURES, WORDINGS


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


ENTRIES = [
    entry
    for path in sorted(FIXTURES.glob("*_*.json"))
    for entry in json.loads(path.read_text(encoding="utf-8")).get("entries", ())[::4]
]


@pytest.mark.parametrize(("text", "command"), WORDINGS["of a program"])
def test_an_unknown_line_of_a_program_gets_its_commands(text, command):
    commands = [step.command for step in next_steps(text)]
    assert commands[:1] == ([command + PIPE] if command else [])


def test_the_answer_claims_no_cause_and_stays_not_recognised(doctor):
    text = "Error! nvidia dkms: frobnicated"
    answer = doctor(3, text)
    assert answer.startswith("not recognised: ")
    assert "$ cat /var/lib/dkms/nvidia/VERSION/build/make.log 2>&1 | gpusetup doctor -\n" in answer
    assert "tell us" in answer
    told = json.loads(doctor(3, "--format", "json", text))
    assert (told["recognised"], told["next_steps"][0]["program"]) == (False, "DKMS")
    assert doctor(3, "--text", "-", given="step 1\n" * 200_000 + text).startswith(answer)


def test_what_programs_take_from_a_text_can_go_into_a_shell():
    texts = "\n".join(f"{entry['text']}$(reboot)`reboot`;reboot" for entry in ENTRIES)
    for expression in (expression for program, _ in programs() for expression in program.names.values()):
        assert all(re.fullmatch(r"[\w@:./+-]+", value, re.ASCII) for value in re.findall(expression, texts))


def test_most_faults_would_get_steps_if_the_catalogue_did_not_know_them():
    faults = [next_steps(entry["text"]) for entry in ENTRIES if entry["cause"]]
    assert sum(map(bool, faults)) > 0.7 * len(faults)
    assert not next_steps("nvidia-smi -q\nGPU Current Temp: 56 C\nthe client of an environment")
