"""A terminal of 40 columns: lines break between words, addresses and commands stay whole."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")


def on_terminal(columns, *argv):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    environment |= {"NO_COLOR": "1", "TERM": "xterm"}
    files = {"stdout": theirs, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", "gpusetup", *argv], env=environment, **files)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 65536):
            said += piece
    os.close(ours)
    assert process.wait(60) is not None
    return said.decode().splitlines()


@pytest.mark.parametrize(
    "argv", [("resolve", "torch", "--gpu", "h100", "--os", "rhel8"), ("matrix", "torch==2.7.*"), ("doctor", "Xid 79")]
)
def test_nothing_but_addresses_and_commands_is_wider_than_the_terminal(argv):
    wide = [line for line in on_terminal(40, *argv) if len(line) > 40]
    whole = re.compile(r"https://|\$ |\\$|gpusetup |pip|sudo |^ *'")  # the last: the last line of a command
    assert [line for line in wide if not whole.search(line)] == []


def test_a_command_is_not_broken():
    lines = on_terminal(40, "resolve", "torch", "driver==580.*", "--gpu", "h100", "--os", "rhel8")
    assert [line for line in lines if line.startswith("install:") and line.endswith("-w driver==580.178.04")]
    assert [line for line in lines if "https://download.pytorch.org/whl/cu130" in line]
