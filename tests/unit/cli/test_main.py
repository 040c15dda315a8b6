"""What escapes every command, what a terminal gets of an answer, and what `--version` tells."""

import contextlib
import errno
import importlib.util
import io
import json
import os
import signal
import sys
from types import SimpleNamespace

import jsonschema
import pytest

from gpusetup import content
from gpusetup.__main__ import run as begin
from gpusetup.cli import main as front
from gpusetup.cli import output
from gpusetup.cli.commands import load_command
from gpusetup.cli.export import schema_of
from gpusetup.cli.main import main
from gpusetup.cli.session import _ask
from gpusetup.cli.streams import terminated_is_interrupted
from gpusetup.drive.events import Failure, HostProgress
from gpusetup.drive.progress import PlainProgress
from gpusetup.errors import BadInputError
from tests.stored import stored_rows


def breaks(monkeypatch, error):
    def run(_arguments):
        raise error

    own = load_command("facts")
    broken = SimpleNamespace(**{**vars(own), "run": run})
    monkeypatch.setattr(front, "load_command", lambda _name: broken)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "the reason", "/var/full"), 5, "the reason (/var/full) [GS-414]"),
        (OSError(errno.EROFS, "the reason"), 5, "the reason [GS-414]"),
        (PermissionError(errno.EACCES, "no", "/root/facts.json"), 3, "cannot use /root/facts.json: no [GS-105]"),
        (FileNotFoundError(errno.ENOENT, "No such file"), 3, "the current folder no longer exists"),
        (OSError(errno.EBADF, "Bad file descriptor"), 1, "this is a bug"),
        (ValueError("https://user:secret@collector.example"), 1, "***@collector.example"),
    ],
)
def test_what_escapes_a_command_is_explained_and_shows_no_login(monkeypatch, says, error, code, said):
    breaks(monkeypatch, error)
    told = says(code, "facts")
    assert said in told
    assert "secret" not in told


ASKED = (
    "matrix {}", "resolve --gpu {}", "resolve torch --lock {}", "why {}", "verify --from {}", "drift {}", "facts --format {}",
    "doctor --from {}", "cloud-init status {}", "matrix cuda --out {}", "fleet audit {}", "fleet history {}",
)  # fmt: skip


@pytest.mark.parametrize("words", ASKED)
def test_no_command_shows_the_secrets_of_an_address(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path))
    for address in ("https://user:s3cret@h.invalid/a", "https://h.invalid/a?b=1&X-Amz-Signature=s3cret"):
        with contextlib.suppress(SystemExit):
            main(words.format(address).split())
        assert (told := "".join(capsys.readouterr()))
        assert "s3cret" not in told


def test_a_password_that_is_no_text_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    with pytest.raises(BadInputError, match="sudo password"):
        _ask("sudo password: ")


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


def test_a_command_is_not_broken(monkeypatch):
    shown = on_terminal(monkeypatch, 40)
    front.main(["resolve", "torch", "driver==580.*", "--gpu", "h100", "--os", "rhel8"])
    lines = shown.getvalue().splitlines()
    assert [line for line in lines if line.startswith("install:") and line.endswith("-w driver==580.178.04")]
    assert [line for line in lines if "https://download.pytorch.org/whl/cu130" in line]
    assert output.wrapped("see https://" + "x" * 80)[1].endswith("https://" + "x" * 80)


def test_a_table_that_fits_stays_a_table_and_a_wide_one_wraps(monkeypatch):
    on_terminal(monkeypatch, 40)
    assert output.table(("a", "b"), [("1", "2")]) == "\x1b[1ma  b\x1b[0m\n────\n1  2\n"
    on_terminal(monkeypatch, 60)
    lines = output.table(("a", "b"), [("12.8.1", "a compiler for it " * 5)]).splitlines()
    assert [max(map(len, lines)), *" ".join(lines[2:]).split()] == [60, "12.8.1", *["a", "compiler", "for", "it"] * 5]


def test_nothing_that_a_host_says_drives_the_terminal(monkeypatch, capsys, tmp_path):
    said = "\x1b[8m\x1b]0;x\x07\x9b\u202e\U000e0001 \x1b[1;31mFAILED\x1b[0m"
    plain = r"\u001b[8m\u001b]0;x\u0007\u009b\u202e\udb40\udc01 "
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for tell in (lambda text: output.write_answer(text, None), output.say):
        tell(said)
    assert "".join(capsys.readouterr()) == f"{plain}\x1b[1;31mFAILED\x1b[0m\n" * 2
    output.write_answer(said, str(tmp_path / "answer.txt"))
    assert (tmp_path / "answer.txt").read_text(encoding="utf-8") == f"{plain}FAILED\n"
    monkeypatch.setenv("NO_COLOR", "1")
    output.write_answer(said, None)
    failed = HostProgress("a", failure=Failure("Look", said))
    PlainProgress(sys.stdout).failures.take({"event": "failed", "name": "Look"}, failed)
    assert "\x1b" not in (shown := capsys.readouterr().out)
    assert shown.count(plain) == 2


def test_an_error_is_red_where_it_is_watched(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert front.main(["resolve", "pandas"]) == 3
    assert shown.getvalue().startswith("\x1b[1;31merror:\x1b[0m unknown component")


def document(says, *argv):
    found: dict[str, object] = json.loads(says(0, "--version", *argv))
    jsonschema.validate(found, schema_of("version"))
    return found


def test_what_is_laid_over_is_named_file_by_file(says, monkeypatch, tmp_path):
    (tmp_path / "gpus.more.json").write_text('{"schema": "gpusetup/matrix-gpus/1", "gpus": []}')
    monkeypatch.setenv("GPUSETUP_MATRIX", str(tmp_path))
    overlays = document(says, "--format", "json")["overlays"]
    assert overlays[0] == {"setting": "GPUSETUP_MATRIX", "place": str(tmp_path), "files": ["gpus.more.json"]}
    assert f"GPUSETUP_MATRIX={tmp_path}: gpus.more.json" in says(0, "--version", "--verbose")


@pytest.mark.parametrize(("folder", "mark", "pip", "said"), stored_rows("ways-to-install-a-package.json"))
def test_a_missing_package_is_installed_as_gpusetup_was(folder, mark, pip, said, tmp_path, monkeypatch):
    prefix = tmp_path / folder
    prefix.mkdir(parents=True)
    (prefix / mark).write_text("")
    monkeypatch.setattr(content.sys, "prefix", str(prefix))
    monkeypatch.setattr(content, "__file__", str(prefix / "lib/gpusetup/content.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: pip or None)
    assert said in content.how_to_install("gpusetup[fleet]")


def test_ctrl_c_while_python_imports_is_one_line(monkeypatch, capsys):
    class Interrupted:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "gpusetup.cli.main", Interrupted())
    assert (begin(), capsys.readouterr().err) == (130, "gpusetup: interrupted\n")


def test_a_command_that_nohup_began_outlives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminated_is_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
