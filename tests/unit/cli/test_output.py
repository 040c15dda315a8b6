"""What a terminal gets: colours where they are wanted, tables that fit where it is narrow."""

import io
import json
import sys

import pytest

from gpusetup.cli import main as front
from gpusetup.cli import output


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch, columns):
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return shown


@pytest.mark.parametrize(
    "words", [("matrix", "torch==2.7.*"), ("matrix",), ("matrix", "driver"), ("matrix", "gpu", "h100")]
)
@pytest.mark.parametrize("columns", [40, 50])
def test_a_narrow_terminal_gets_every_word_of_a_table(monkeypatch, words, columns):
    shown = on_terminal(monkeypatch, columns)
    assert front.main(list(words)) == 0
    text = shown.getvalue()
    assert "…" not in text
    if words[-1] == "torch==2.7.*":
        assert "torch 2.7.1" in text
        assert "  driver ≥: 525.60.13" in text
        assert max(map(len, text.splitlines())) <= columns


def test_a_table_that_fits_stays_a_table(monkeypatch):
    shown = on_terminal(monkeypatch, 40)
    shown.write(output.table(("a", "b"), [("1", "2")]))
    assert "─" in shown.getvalue()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [((), False), (("FORCE_COLOR",), True), (("NO_COLOR",), False), (("FORCE_COLOR", "NO_COLOR"), False)],
)
def test_colour_is_as_the_environment_says(monkeypatch, environment, expected):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in environment:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    text = output.painted("gpu-a: FAILED part-way\n  refused  no room\n")
    assert ("\x1b[1;31mFAILED\x1b[0m" in text) is expected
    assert ("\x1b[1;31m  refused\x1b[0m" in text) is expected


def test_a_file_gets_no_colours(monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = output.table(("host", "state"), [("gpu-a", "done")])
    assert "\x1b" in table
    output.write_answer(output.painted("FAILED\n") + table, str(tmp_path / "answer.txt"))
    assert "\x1b" not in (tmp_path / "answer.txt").read_text(encoding="utf-8")


def test_a_file_name_that_is_not_utf8_is_in_every_answer(tmp_path):
    assert json.loads(output.json_text({"path": "/srv/\udcff"}).encode()) == {"path": "/srv/\\udcff"}
    output.write_answer("/srv/\udcff", str(tmp_path / "answer.txt"))
    assert (tmp_path / "answer.txt").read_text(encoding="utf-8") == "/srv/\\udcff\n"


def test_an_error_is_red_where_it_is_watched(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert front.main(["resolve", "pandas"]) == 3
    assert shown.getvalue().startswith("\x1b[1;31merror:\x1b[0m unknown component")
