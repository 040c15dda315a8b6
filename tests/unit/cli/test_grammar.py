"""The command line: words in any order, one line with a suggestion where a word is not known, quiet on demand."""

import argparse
import json
import re
from pathlib import Path

import pytest

from gpusetup.cli import grammar, options
from gpusetup.cli import main as front
from gpusetup.cli.commands import ALIASES, COMMANDS, GROUPS, WITHOUT_OWN, below, first_words
from gpusetup.errors import BadInputError
from tests.property.test_command_line import run as answered
from tests.stored import stored_rows

HOSTS = Path(__file__).resolve().parents[2] / "hosts"


def run(*words):
    return answered(list(words))


@pytest.mark.parametrize(("words", "named"), stored_rows("requirements-stand-before-and-behind-opt.json"))
def test_requirements_stand_before_and_behind_options(words, named):
    code, out, err = run(*words, "--format", "json")
    assert (code, err) == (0, "")
    stack = json.loads(out)["stack"]
    assert set(named) <= set(stack)
    if "2.6" in words:
        assert stack["torch"]["version"] == "2.6.0"


def test_why_takes_requirements_behind_an_option_and_a_version_that_stands_apart():
    code, out, _ = run("why", "driver", "--gpu", "h100", "torch==2.6.*")
    assert code == 0
    assert out.startswith("driver ")
    code, out, _ = run("why-not", "cuda", "13.1", "--gpu", "v100", "--format", "json")
    assert (code, json.loads(out)["version"]) == (4, "cuda==13.1.*")


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


@pytest.mark.parametrize(("said", "meant"), [("arm64", "aarch64"), ("amd64", "x86_64"), ("aarch64", "aarch64")])
def test_architectures_by_both_their_names(said, meant):
    answers = [run("resolve", "torch", "--arch", name, "--format", "json")[:2] for name in (said, meant)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 0


def test_quiet_says_nothing_beside_the_answer():
    words = ("matrix", "torch", "--driver", "550.199.99")
    _, loud, warned = run(*words)
    assert "warning" in warned
    assert run(*words, "-q") == (0, loud, "")
    assert "error" in run("resolve", "pandas", "--quiet")[2]
    assert run(*words)[2] == warned, "quiet is for one run"


def test_no_words_at_all_are_a_request_for_help():
    assert run() == run("--help")


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


def test_every_group_names_each_first_word_once():
    words = [word for group in GROUPS.values() for word in group]
    assert sorted(words) == sorted({name.split()[0] for name in COMMANDS})
    assert set(ALIASES.values()) <= set(COMMANDS)
    assert not set(ALIASES) & set(words)
    assert set(WITHOUT_OWN) == {word for word in words if word not in COMMANDS}


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


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_without_the_one_that_its_help_names_is_refused(name):
    parser = front.command_parser(name)
    needed = [action for action in parser._actions if action.required]
    words = [word for one in needed for word in (*one.option_strings[:1], next(iter(one.choices or ["x"])))]
    for action in parser._actions:
        told = action.help or ""
        if not told.startswith("with --"):
            continue
        others = re.findall(r"--[a-z-]+", told.split(": ")[0])
        assert set(others) <= set(parser._option_string_actions), told
        value = [] if action.nargs == 0 else [str(next(iter(action.choices or ["7"])))]
        arguments = parser.parse_args([*words, action.option_strings[0], *value])
        with pytest.raises(BadInputError, match=f"^{action.option_strings[0]} has no effect without {others[0]}"):
            options.refuse_idle(arguments, parser)
