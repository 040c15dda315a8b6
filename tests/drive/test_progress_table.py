"""The live table of a watched run: one line per host whatever is said, and nothing of it read as markup."""

from __future__ import annotations

import io
import time

from gpusetup.drive.events import Failure, Track
from gpusetup.drive.progress import watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch, *, failed=False):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    track, out = Track(), Terminal()
    host = track.host("lab-t4")
    host.task, host.task_since = "Python environment", time.time() - 25
    host.detail = "python Downloading [bold]" + "x" * 200
    with watch(out, phase="apply") as observer:
        observer.tick(track)
        if failed:
            host.failure = Failure("Python environment", "[red]no[/] room", unreachable=False)
            observer.event({"event": "failed", "host": "lab-t4", "name": "Python environment"}, track)
    return out.getvalue()


def test_a_long_step_stays_on_one_line(monkeypatch):
    lines = [line for line in shown(monkeypatch).splitlines() if "Downloading" in line]
    assert lines
    assert all("lab-t4" in line and "25 s" in line and "[bold]x" in line and "…" in line for line in lines)


def test_a_failure_is_said_as_it_is(monkeypatch):
    text = shown(monkeypatch, failed=True)
    assert "lab-t4: FAILED Python environment: [red]no[/] room" in text
    assert "[/]  " not in text
