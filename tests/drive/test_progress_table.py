"""The live table of a watched run: one line per host whatever is said, and nothing of it read as markup."""

import io
import time

import pytest

from gpusetup.drive.events import Track
from gpusetup.drive.progress import PlainProgress, watch


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The clock stands: how long a step has run is what the test says, however busy the machine."""
    monkeypatch.setattr(time, "time", iter([time.time()] * 9999).__next__)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_step_stays_on_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    track, out = Track(), Terminal()
    host = track.host("lab-t4")
    host.task, host.task_since = "Python environment", time.time() - 25
    host.detail = "python Downloading [bold]" + "x" * 200
    with watch(out, phase="apply") as observer:
        observer.tick(track)
    lines = [line for line in out.getvalue().splitlines() if "Downloading" in line]
    assert lines
    assert all("lab-t4" in line and "25 s" in line and "[bold]x" in line and "…" in line for line in lines)


def crowd(hosts):
    track = Track()
    for number in range(hosts):
        host = track.host(f"gpu-{number}")
        host.task = "Install the packages" if number % 10 else "Reboot"
        host.task_since = time.time() - 40 - number
    return track


def test_a_crowd_is_shown_by_what_it_does(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with watch(out, phase="apply") as observer:
        for track in (crowd(1000), Track()):
            observer.tick(track)  # the second is too soon to be drawn
    text = out.getvalue()
    assert "900 hosts, the longest gpu-999 for 1039 s" in text
    assert "100 hosts, the longest gpu-990 for 1030 s" in text
    assert len(text.splitlines()) < 24


def test_a_log_of_a_crowd_has_lines_of_steps_not_of_hosts(monkeypatch):
    out, track = io.StringIO(), crowd(1000)
    observer = PlainProgress(out)
    for name in track.hosts:
        observer.event({"event": "changed", "host": name, "name": "Install the packages", "seconds": 3}, track)
    observer.tick(track)
    assert out.getvalue() == ""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31)
    observer.tick(track)
    assert len(out.getvalue().splitlines()) == 2
    assert "Install the packages: 900 hosts" in out.getvalue()
