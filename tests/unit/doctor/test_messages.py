"""Messages, numbers and logs: what is recognised, decoded, left out; what unknown ones are about and the next steps."""

import json
import re

import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.builds import torch_build
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.next_steps import PIPE, next_steps, programs
from gpusetup.doctor.other_trouble import outside
from gpusetup.doctor.patterns import Expression
from gpusetup.doctor.questions import lookups
from tests.unit.doctor.score import FIXTURES, WORDINGS, named, score
from tools.similar import PLACE, table


def causes(text):
    return [finding.cause for finding in diagnose_text(text)]


def test_an_old_driver_is_decoded_to_branch_and_builds():
    (found,) = diagnose_text("The NVIDIA driver on your system is too old (found version 11040).")
    assert found.cause == "driver-too-old"
    for word in ("11.4", "R470", "+cu118", "525.60.13"):
        assert word in " ".join(found.details)


@pytest.mark.parametrize(("asked", "cause"), WORDINGS["bare numbers"])
def test_bare_numbers(asked, cause):
    assert causes(asked)[:1] == ([cause] if cause else [])


def test_torch_without_a_suffix_is_the_build_that_pypi_has_for_the_processor():
    assert [getattr(torch_build("2.14.0", arch), "variant", "") for arch in ("x86_64", "aarch64")] == ["cu130"] * 2
    assert [torch_build(text, "aarch64") is None for text in ("2.10.0", "2.10.0+cu128")] == [True, False]


def test_a_log_on_one_line_is_read_as_quickly_as_one_of_many(monkeypatch):
    """Each part of the line is judged once, however often it has the message."""
    tried, real = [], Expression.fits
    monkeypatch.setattr(Expression, "fits", lambda one, place: tried.append(one) or real(one, place))
    line = " ".join(f"RuntimeError: CUDA error: out of memory at {at}" for at in range(9000))
    assert diagnose_text(line)[0].cause == "out-of-memory"
    assert len(tried) < len(line) / 100


def test_a_symptom_has_a_line_that_no_cause_has():
    known = "CUDA error: no kernel image is available"
    assert causes(known) == ["no-kernel-image"]
    assert causes(f"{known}\nRuntimeError: CUDA error: some other text") == ["no-kernel-image", "cuda-error"]


@pytest.mark.parametrize(("name", "missed", "wrong"), WORDINGS["missed of a set"])
def test_a_set_stays_named(name, missed, wrong):
    found = score(name)
    assert len(found.missed) <= missed, found.missed
    assert found.wrong <= wrong


@pytest.mark.parametrize(
    ("cause", "wordings", "words"), WORDINGS["of a class"], ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_rule_holds_for_its_whole_class(cause, wordings, words):
    lines = [wording.format(word) for wording in wordings for word in words]
    assert [(line, named(line)) for line in lines] == [(line, cause) for line in lines]


@pytest.mark.parametrize("line", WORDINGS["of no rule"])
def test_a_rule_leaves_what_is_not_its_own(line):
    assert named(line) is None


@pytest.mark.parametrize(("symbol", "cause"), WORDINGS["of a symbol"])
def test_a_symbol_tells_its_library(symbol, cause):
    assert named(f"ImportError: /opt/env/x.so: undefined symbol: {symbol}") == cause


@pytest.mark.parametrize("text", ["hello", "hello\nworld, all good", "Xid 79", "CUDA error: out of memory", "GS-324"])
def test_a_text_says_the_same_as_an_argument_and_as_a_file(text, tmp_path, capsys):
    by_argument = main(["doctor", text]), capsys.readouterr().out
    for mark in ("", "\ufeff"):  # Windows begins a file with it
        (tmp_path / "log").write_text(mark + text, encoding="utf-8")
        assert (main(["doctor", "--text", str(tmp_path / "log")]), capsys.readouterr().out) == by_argument


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (bytes(range(256)) * 20, "this is not text"),
        (b"hello\nworld\n", "no line of this text is known"),
    ],
)
def test_healthy_is_said_only_of_what_is_known(raw, words, tmp_path, capsys):
    log = tmp_path / "log"
    log.write_bytes(raw)
    assert main(["doctor", "--text", str(log)]) == 3
    told = capsys.readouterr()
    assert words in " ".join((told.out + told.err).split())
    assert "healthy" not in told.out


@pytest.mark.parametrize(
    ("text", "kind"), [*WORDINGS["of another trouble"], *((text, "") for text in WORDINGS["of nothing known"])]
)
def test_the_kind_of_trouble_is_told_and_none_where_one_line_may_be_the_installations(text, kind):
    assert "".join(one.id for one in outside(text)) == kind


def test_an_unknown_message_without_a_word_of_the_gpu_gets_a_next_step(doctor):
    assert "begin with the program" in doctor(3, "frobnication failed: 42")
    assert "begin with the program" not in doctor(3, "nvidia frobnication failed: 42")


ENTRIES = [
    entry
    for path in sorted(FIXTURES.glob("*_*.json"))
    for entry in json.loads(path.read_text(encoding="utf-8")).get("entries", ())[::4]
]


@pytest.mark.parametrize(("text", "command"), WORDINGS["of a program"])
def test_an_unknown_line_of_a_program_gets_its_commands(text, command):
    commands = [step.command for step in next_steps(text)]
    assert commands[:1] == ([command + PIPE] if command else [])


@pytest.mark.parametrize(("text", "commands"), WORDINGS["of a question"])
def test_a_question_gets_the_lookups_of_what_it_names(text, commands, doctor):
    assert list(lookups(text)) == commands


def test_the_answer_claims_no_cause_and_stays_not_recognised(doctor):
    text = "Error! nvidia dkms: frobnicated"
    answer = doctor(3, text)
    assert answer.startswith("not recognised: ")
    assert "$ cat /var/lib/dkms/nvidia/VERSION/build/make.log 2>&1 | gpusetup doctor -\n" in answer
    assert "tell us" in answer
    told = json.loads(doctor(3, "--format", "json", text))
    assert (told["recognised"], told["next_steps"][0]["program"]) == (False, "DKMS")
    assert doctor(3, "--text", "-", given="step 1\n" * 200_000 + text).startswith(answer)


def test_where_no_rule_knows_a_message_the_causes_of_similar_ones_are_offered_and_none_is_claimed(doctor):
    text = "frobnicated: the display of sessions with remote desktop is dark until nvidia persistence daemon restarts"
    told = json.loads(doctor(3, "--format", "json", text))
    assert (told["recognised"], told["findings"], len(told["similar"])) == (False, [], 3)
    assert all(f"[{cause}]" in doctor(3, text) for cause in told["similar"])
    assert "similar" not in json.loads(doctor(3, "--format", "json", "frobnication failed"))


def test_the_weights_of_words_are_those_of_the_labelled_messages():
    assert PLACE.read_text(encoding="utf-8") == table(), "python -m tools.similar writes them"


def test_what_programs_take_from_a_text_can_go_into_a_shell():
    texts = "\n".join(f"{entry['text']}$(reboot)`reboot`;reboot" for entry in ENTRIES)
    for expression in (expression for program, _ in programs() for expression in program.names.values()):
        assert all(re.fullmatch(r"[\w@:./+-]+", value, re.ASCII) for value in re.findall(expression, texts))


def test_most_faults_would_get_steps_if_the_catalogue_did_not_know_them():
    faults = [next_steps(entry["text"]) for entry in ENTRIES if entry["cause"]]
    assert sum(map(bool, faults)) > 0.7 * len(faults)
    assert not next_steps("nvidia-smi -q\nGPU Current Temp: 56 C\nthe client of an environment")
