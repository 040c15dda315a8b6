"""TAB, asked the way argcomplete asks, and in real shells that read what `gpusetup export completion` prints."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
QUESTIONS = [
    ("gpusetup matrix --os ubuntu2", {"ubuntu22.04", "ubuntu24.04"}),
    ("gpusetup resolve --gpu l40", {"l40", "l40s"}),
    ("gpusetup resolve flash", {"flash-attn", "flashinfer-python"}),
    ("gpusetup fleet ", {"token", "offer"}),
    ("gpusetup fleet known", {"known-hosts"}),
]
"""What is typed → what TAB must offer."""
SETTLE = {"bash": "bind 'set enable-bracketed-paste off'; PS1='ready> '", "zsh": "PS1='ready> '; setopt NO_PROMPT_CR"}
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def environment(home):
    path = f"{BIN}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "TERM": "dumb", "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": str(home)}


def offered(shell, typed, home, expected):
    """The words that the shell shows on the terminal after TAB, as soon as the expected ones are among them."""
    if shell == "fish":
        script = f"gpusetup export completion fish | source; complete -C '{typed}'"
        argv = ["fish", "--no-config", "-c", script]
        done = subprocess.run(argv, env=environment(home), capture_output=True, text=True, timeout=120, check=True)
        return set(done.stdout.split())
    pexpect = pytest.importorskip("pexpect")
    words = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
    how = {"cwd": home, "encoding": "utf-8", "timeout": 60, "dimensions": (60, 200)}
    session = pexpect.spawn(shell, words, env=environment(home), **how)
    load = "autoload -U compinit; compinit -u; " if shell == "zsh" else ""
    session.sendline(f"{load}{SETTLE[shell]}; eval \"$(gpusetup export completion {shell})\"; echo lo''aded")
    session.expect("loaded\r?\n")
    session.send(f"{typed}\t\t")
    shown: set[str] = set()
    until = time.monotonic() + 60
    while not expected <= shown and time.monotonic() < until:
        session.expect([pexpect.TIMEOUT, pexpect.EOF], timeout=0.2)
        shown = set(ANSI.sub("", session.before).replace("\r", "\n").split())
    session.close(force=True)
    return shown


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Fail at once if the program does not run: one installed from a folder that is gone offers nothing, slowly."""
    if not (BIN / "gpusetup").exists():
        pytest.skip("gpusetup is not installed as a program here")
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(["gpusetup", "--version"], env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{BIN / 'gpusetup'} does not run: {done.stderr[-300:]}"


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(("typed", "expected"), QUESTIONS, ids=[typed for typed, _ in QUESTIONS])
def test_tab_in_a_real_shell(shell, typed, expected, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    shown = offered(shell, typed, tmp_path, expected)
    assert expected <= shown, shown
