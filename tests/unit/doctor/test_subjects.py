"""Messages by subject: the open half is right, rules hold for whole classes, a text says the same however it comes."""

import pytest

from gpusetup.cli.main import main
from tests.unit.doctor.score import WORDINGS, named, score


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
