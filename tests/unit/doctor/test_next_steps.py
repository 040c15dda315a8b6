"""What gets more about a text without a known cause: the right program, its commands, and nothing about other texts."""

import json
import re

import pytest

from gpusetup.doctor.next_steps import PIPE, next_steps, programs
from tests.unit.doctor.score import FIXTURES, WORDINGS

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
