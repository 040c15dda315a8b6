"""`./dev test real` without a machine: its arguments, and the journey's verdicts."""

import json

import pytest

from tests.lab.applying import Answer
from tests.lab.places import LabError
from tests.real import __main__ as command
from tests.real import images
from tests.real.journey import NO_GPU, STEPS, Journey

FACTS = {"os": {"name": "Rocky Linux 9.6"}, "kernel": {"running": "5.14.0-570.el9.x86_64"}}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "name what is to be tried"),
        (["--host", "ubuntu@gpu07"], 2, "would be changed and rebooted: say --yes"),
        (["--collect", "x", "--image", "y"], 2, "--collect DIR alone"),
        (["--image", "x", "--gpu", "voodoo2"], 2, "invalid choice"),
        (["--image", "/nonexistent.qcow2", "--set", "A=1"], 5, "'A=1' is no NAME=VALUE"),
        (["--host", "h", "--yes", "--source", "stand-in"], 5, "a real host gets real packages"),
        (["--host=-oProxyCommand=x", "--yes"], 5, "is no host"),
    ],
)
def test_arguments(words, code, says, capsys, tmp_path):
    try:
        ended = command.main([*words, "--out", str(tmp_path)])
    except SystemExit as error:
        ended = int(error.code or 0)
    assert ended == code
    assert says in capsys.readouterr().err


class Asked:
    """A gpusetup that answers as it was told, and remembers what it was asked."""

    def __init__(self, **answers):
        same = (0, {"state": "same"})
        usual = {"facts": (0, FACTS), "drift": same, "remove": (9, {"state": "pending-reboot", "left_over": {}})}
        self.answers, self.words = {**usual, **answers}, []

    def __call__(self, _folder, name, *words, **_more):
        self.words.append((name, *map(str, words)))
        told = self.answers[name]
        code, host = told.pop(0) if isinstance(told, list) else told
        return Answer(code, json.dumps({"ok": code == 0, "hosts": {"m": host}}), "", 2.0, ())


def travel(tmp_path, asked):
    wanted, older = ("driver==595.*",), ("driver==580.*",)
    journey = Journey("m", tmp_path, {"ansible_host": "x"}, wanted, older, lambda _: None, ask=asked)
    steps = {step.name: step for step in journey.run()}
    assert sorted(steps) == sorted(STEPS), "every step is told, run or not"
    return steps


DONE, SAME = (0, {"state": "done", "changed": 9}), (0, {"state": "unchanged", "changed": 0})


def test_the_whole_way(tmp_path):
    checked = (0, {"state": "done", "checks": [{"verdict": "skip"}, {"verdict": "skip"}, {"verdict": "pass"}]})
    asked = Asked(apply=[checked, SAME, DONE], rollback=DONE)
    steps = travel(tmp_path, asked)
    assert all(step.as_wanted for step in steps.values())
    assert steps["apply"].said == "checks: 1 pass, 2 skip", "a skip is told as a skip"
    assert [words[0] for words in asked.words] == ["facts", "apply", "apply", "drift", "apply", "rollback", "remove"]
    wanted = [words[words.index("--want") + 1] for words in asked.words if "--want" in words]
    assert wanted == ["driver==580.*", "driver==580.*", "driver==595.*"], "the older one first"


@pytest.mark.parametrize(
    ("answer", "as_wanted", "said", "left_out", "removed"),
    [
        ((0, {"state": "nothing-to-do"}), True, NO_GPU, "remove", None),
        ((7, {"state": "failed", "failure": {"message": "no such\n package", "reference": "GS-452"}}), False,
         "no such package [GS-452]", "drift", 9),
    ],
    ids=["no GPU", "failed"],
)  # fmt: skip
def test_an_apply_that_ends_the_way_is_told_with_its_reason(tmp_path, answer, as_wanted, said, left_out, removed):
    steps = travel(tmp_path, Asked(apply=answer))
    assert (steps["apply"].as_wanted, steps["apply"].said) == (as_wanted, said)
    assert (steps[left_out].code, steps["remove"].code) == (None, removed)


@pytest.mark.parametrize(
    ("answers", "name", "said"),
    [
        ({"apply": [DONE, (0, {"state": "unchanged", "changed": 2}), DONE]}, "second run", "2 changed"),
        ({"apply": [DONE, (0, {"state": "done", "changed": 2}), DONE]}, "second run", "2 changed"),
        ({"drift": (9, {"state": "drifted", "differences": [{"what": "hold of x"}]})}, "drift", "hold of x"),
        ({"drift": (0, {"state": "unknown"})}, "drift", ""),
        ({"remove": (0, {"state": "done", "left_over": {"libfoo": "1"}})}, "remove", "left over: libfoo"),
        ({"remove": (7, {"state": "failed"})}, "remove", ""),
        ({"rollback": (0, {"state": "unchanged"})}, "rollback", ""),
        ({"facts": (6, {})}, "facts", "no answer"),
    ],
)
def test_an_exit_code_of_0_alone_proves_nothing(tmp_path, answers, name, said):
    steps = travel(tmp_path, Asked(**{"apply": [DONE, SAME, DONE], "rollback": DONE, **answers}))
    assert not steps[name].as_wanted
    assert steps[name].said == said


def test_an_image_that_is_not_there_does_not_stop_the_next(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "require", lambda _: None)
    words = ["--image", str(tmp_path / "one.qcow2"), "--image", str(tmp_path / "two.qcow2"), "--out", str(tmp_path)]
    assert command.main(words) == 1
    told = capsys.readouterr().err
    assert "one.qcow2" in told
    assert "two.qcow2" in told
    with pytest.raises(LabError, match="takes a file, an address, or the word lab"):
        images.ready(str(tmp_path / "none.qcow2"))
