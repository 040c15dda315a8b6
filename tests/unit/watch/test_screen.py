"""A picture of 200 hosts on a pseudo terminal: after the first one, only what changed is written."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

ROOT = Path(__file__).parents[3]
DRAWS = """
import json, os, sys
from gpusetup.cli.watch_screen import Screen
from gpusetup.watch.view import Span

def picture(changed):
    hosts = [f"gpu-{number:03}           {41 if number in changed else 97}%  71%  60°  1200W " for number in range(200)]
    return [[Span(hosts[place + 50 * column].ljust(49) + " ", "bad" if place == 3 else "") for column in range(4)] for place in range(50)]

with Screen() as screen:
    for changed in ([], [], range(0, 200, 20), []):
        screen.draw(picture(changed))
        os.write(1, b"\\0")  # the end of a picture
"""


def test_only_what_changed_is_written():
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    for name in ("NO_COLOR", "LINES", "COLUMNS"):
        environment.pop(name, None)
    program = subprocess.Popen([sys.executable, "-c", DRAWS], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment)  # fmt: skip
    os.close(theirs)
    seen = bytearray()

    def read():
        try:
            while piece := os.read(ours, 65536):
                seen.extend(piece)
        except OSError:
            pass  # the last one has closed it

    reading = threading.Thread(target=read)
    reading.start()
    assert program.wait(30) == 0, program.stderr.read().decode()
    reading.join(10)
    os.close(ours)
    program.stderr.close()
    first, same, ten, back, _ = map(len, bytes(seen).split(b"\0"))
    sizes = json.dumps({"first": first, "same": same, "ten": ten, "back": back})
    assert first > 200 * 20, sizes
    assert same < 30, sizes
    assert ten < first / 10, sizes
    assert back < first / 10, sizes
