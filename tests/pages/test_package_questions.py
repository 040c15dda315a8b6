"""Questions about packages above the frameworks: each answer was derived by hand before the question was asked."""

import json
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.matrix.load import matrix
from gpusetup.plan.host import Planner
from gpusetup.plan.settings import read_level, settings_for
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.hosts.machines import machine

TESTS = Path(__file__).resolve().parents[1]
QUESTIONS = json.loads((TESTS / "fixtures" / "package-questions.json").read_text(encoding="utf-8"))["questions"]
ANSWERS_AS_JSON = ("resolve", "matrix", "why-not")


def planned(host, variables):
    """Plan a captured host whose inventory has these variables."""
    wish = settings_for(read_level(variables, "inventory"), {}, {}, parse_requirements([]))
    plan = Planner(matrix(), resolve).first(machine(host), wish).plan
    code = max((refusal.exit for refusal in plan.refusals), default=0)
    return code, json.dumps({"stack": msgspec.to_builtins(plan.stack), "refusals": msgspec.to_builtins(plan.refusals)})


def asked(command, capsys):
    """Ask a command line in this process."""
    words = shlex.split(command)
    if words[0] in ANSWERS_AS_JSON and "--install" not in words:
        words += ["--format", "json"]
    code = main(words)
    said = capsys.readouterr()
    return code, said.out + said.err


def value_at(document, path):
    """Return what is at stack.vllm.version or rows.0.torch; None where nothing is."""
    for part in path.split("."):
        found = dict(enumerate(document)) if isinstance(document, list) else document
        document = found.get(int(part) if part.isdigit() else part) if isinstance(found, dict) else None
    return document


def test_there_are_sixty_questions_and_half_were_closed():
    assert [item["half"] for item in QUESTIONS].count("closed") == len(QUESTIONS) / 2 == 30


@pytest.mark.parametrize("question", QUESTIONS, ids=[item["asked"] for item in QUESTIONS])
def test_the_answer_is_the_one_that_the_metadata_gives(question, monkeypatch, capsys):
    monkeypatch.chdir(TESTS.parent)
    monkeypatch.delenv("GPUSETUP_MATRIX", raising=False)
    if "host" in question:
        code, text = planned(question["host"], question["variables"])
    else:
        code, text = asked(question["run"], capsys)
    assert code == question["exit"], text
    document = json.loads(text) if "has" in question else None
    for path, wanted in question.get("has", {}).items():
        assert fnmatchcase(str(value_at(document, path)), wanted), path
    for word in question.get("says", ()):
        assert word in text
    for word in question.get("never", ()):
        assert word not in text
