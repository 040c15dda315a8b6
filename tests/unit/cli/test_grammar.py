"""The command line: words in any order, one line with a suggestion where a word is not known, quiet on demand."""

import argparse
import re

import pytest

from gpusetup.cli import grammar
from gpusetup.cli import main as front
from gpusetup.cli.commands import COMMANDS, WITHOUT_OWN, below, first_words
from tests.property.test_command_line import run as answered
from tests.stored import stored_rows


def run(*words):
    return answered(list(words))


@pytest.mark.parametrize(("words", "suggestion"), stored_rows("what-is-not-known-gets-a-suggestion-and.json"))
def test_what_is_not_known_gets_a_suggestion_and_not_the_usage(words, suggestion):
    code, out, err = run(*words.split())
    assert (code, out) == (2, "")
    assert suggestion in err
    assert len(err.splitlines()) <= 2


def test_help_and_version_are_words_as_well():
    assert run("version")[1].startswith("gpusetup ")
    assert run("version", "--verbose") == run("--verbose", "--version")
    assert "ansible-core " in run("--version", "--verbose")[1]
    assert "choose a stack:" in run("help")[1]
    assert "--gpu" in run("help", "resolve")[1]


def test_the_help_fits_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("--help")[1].splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")}
    assert {name.split()[0] for name in COMMANDS} <= shown
    assert len(lines) <= 50
    assert len(first_words()) <= 16


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_a_screen_of_60_lines(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = front.command_parser(name).format_help().splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_help_all_shows_every_option_and_the_rare_ones_exist(name):
    parser = front.command_parser(name)
    options = {one for action in parser._actions for one in action.option_strings}
    whole, short = parser.format_help(whole=True), parser.format_help()
    assert all(one in whole for one in options)
    rare = set(grammar.tables()["rare"].get(name, ()))
    assert rare <= options
    assert not any(re.search(rf"^  (\S+, )*{one}[ ,]", short, re.MULTILINE) for one in rare)


@pytest.mark.parametrize("word", WITHOUT_OWN)
def test_a_first_word_alone_lists_what_follows_it(word):
    for words in ((word,), (word, "--help"), ("help", word)):
        code, out, _ = run(*words)
        assert code == 0
        assert all(f"gpusetup {word} {second} " in out for second in below(word))
    code, _, err = run(word, below(word)[0][:-1])
    assert code == 2
    assert f"gpusetup {word} {below(word)[0]}" in err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_of_one_value_is_given_once(name):
    for action in front.command_parser(name)._actions:
        if isinstance(action, argparse._StoreAction) and action.option_strings:
            value = [action.option_strings[-1], next(iter(action.choices or ["7"]))]
            code, _, err = run(*name.split(), *map(str, value * 2))
            assert (code, "given twice" in err) == (2, True), value


@pytest.mark.parametrize("words", ["facts -- --become", "facts -K", "watch -e x=1", "verify -- -vvv"])
def test_what_only_ansible_reads_is_refused_where_ansible_has_no_part(words):
    code, _, err = run(*words.split())
    assert (code, "has no effect without an inventory" in err) == (3, True)
