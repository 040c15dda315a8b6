"""The history of a host: kept through cuts and damage, bounded, told in text, JSON and pictures."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from typing import Any

import pytest

from gpusetup.cli.main import main
from gpusetup.cli.verify import _boards
from gpusetup.errors import BadInputError
from gpusetup.model.verdict import Item, Result
from gpusetup.report import history
from gpusetup.report.model import HostReport, Report, Row
from gpusetup.verify import probe
from gpusetup.verify.probe import Observed
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.verify.verify_documents import captured, set_smi


def copy(value, verdict="pass"):
    item = Item(subject="GPU 0", verdict=verdict, measured=value)
    return Result(id="memory.copy", level="full", verdict=verdict, text="", unit="GB/s", items=(item,))


def report_of(number, *results, level="full"):
    day = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + 86400 * number))
    rows = (Row(label="driver", text="580.159.04"),)
    host = HostReport(name="gpu07", results=results, rows=rows, seconds=1.0)
    return Report(title="", started=day, seconds=1.0, program="gpusetup 0", level=level, hosts=(host,))


def keep(path, report, gpus="a"):
    return history.append(path, report.hosts[0], report, gpus)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "h.sqlite3"


def test_what_was_found_is_kept_with_its_figures(tmp_path):
    path = tmp_path / "h" / "gpu07.sqlite3"
    bad = Result(id="gpu.ecc", level="quick", verdict="fail", text="GPU 0: 3 errors")
    keep(path, report_of(0, copy(4200.0)))
    keep(path, report_of(1, copy(4190.0, "skip"), bad))
    first, second = history.runs(path)
    assert (first.verdict, first.driver, first.findings) == ("pass", "580.159.04", ())
    assert (second.verdict, second.findings) == ("fail", (("gpu.ecc", "fail", "GPU 0: 3 errors"),))
    (one,) = history.series(path)
    assert [value for _, value in one.points] == [4200.0], "what was measured beside somebody's work is not compared"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_page_that_is_broken_inside_the_file_is_said(path):
    for number in range(60):
        keep(path, report_of(number, copy(4200.0)))
    whole = path.read_bytes()
    path.write_bytes(whole[: 8 * 4096] + b"\xff" * (len(whole) - 8 * 4096))
    for read in (history.runs, history.series):
        with refused(BadInputError, "GS-514"):
            read(path)


def test_a_figure_beside_a_job_and_one_that_is_no_number_are_left_out(path):
    beside = changed(copy(0.0), items=(Item("GPU 0", "warn", measured=2000.0, blame="job"),))
    assert keep(path, report_of(0, beside)) == keep(path, report_of(1, copy(float("nan"), "fail"))) == ""
    keep(path, report_of(2, copy(95_100.0, "fail")))  # more than the hardware can do
    assert (len(history.runs(path)), history.series(path)) == (3, ())


def test_a_board_that_was_exchanged_begins_anew(path):
    for number in range(4):
        keep(path, report_of(number, copy(4000.0 + number)), "old" if number < 3 else "new")
    assert [[value for _, value in one.points] for one in history.series(path)] == [[4003.0]]


def test_it_is_bounded_and_keeps_the_first_runs(path, monkeypatch):
    for name, value in {"KEPT": 30, "FIRST": 5}.items():
        monkeypatch.setattr(history, name, value)
    for number in range(60):
        keep(path, report_of(number, copy(4000.0 + number)))
        keep(path, report_of(number, level="quick"))
    (one,) = history.series(path)
    assert [value - 4000 for _, value in one.points] == [*range(5), *range(35, 60)]
    assert [len(history.runs(path, level)) for level in ("full", "quick")] == [30, 30]
    monkeypatch.setattr(history, "LARGEST", 1)
    keep(path, report_of(60, copy(4000.0)))
    assert 5 <= len(history.runs(path, "full")) < 30
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM figure WHERE run NOT IN (SELECT id FROM run)").fetchone() == (0,)


def test_a_damaged_file_is_set_aside_and_told(path):
    path.write_bytes(b"no database at all" * 100)
    assert "damaged" in keep(path, report_of(0, copy(4200.0)))
    assert len(history.runs(path)) == 1
    assert list(path.parent.glob("*.damaged-*"))


WRITER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{root!r}]
from tests.fleet.health.test_history import copy, keep, report_of
for number in range(100000):
    keep(Path({path!r}), report_of(number, *[copy(4000.0 + index) for index in range(40)]))
    print(number, flush=True)
"""


def test_a_cut_while_writing_loses_no_run_that_was_kept(path):
    told = -1
    argv = [sys.executable, "-c", WRITER.format(root=os.getcwd(), path=str(path))]
    for pause in (0.0, 0.023):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
            lines = [int(writer.stdout.readline()) for _ in range(5)]
            time.sleep(pause)
            writer.send_signal(signal.SIGKILL)
            lines += [int(line) for line in writer.stdout.read().split()]
        told += len(lines)
        with sqlite3.connect(path) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            halves = database.execute("SELECT run, count(*) FROM figure GROUP BY run HAVING count(*) != 40").fetchall()
        assert halves == [], "a run is whole or not there"
        assert len(history.runs(path)) >= told


@pytest.fixture
def here(tmp_path, monkeypatch):
    """This machine, as a captured one; each verification is a moment of its own."""
    state: dict[str, Any] = {"document": captured("h200-x1-quick")}
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(probe, "observe_in_turn", lambda *_: Observed(state["document"]))
    return state


def test_every_verification_is_in_the_history(here, printed, says):
    assert "there is no history of this machine" in says(3, "fleet", "history")
    assert main(["verify", "--level", "quick"]) == 0
    set_smi(here["document"], 0, "gpu_recovery_action", "Reset")
    says(8, "verify", "--level", "quick")
    out = says(0, "fleet", "history")
    assert ("localhost: 2 verifications" in out, "fail gpu.recovery: " in out) == (True, True)
    answer = printed(0, "fleet", "history", "--runs", "1")
    assert (answer["ok"], [run["verdict"] for run in answer["runs"]]) == (True, ["fail"])


def test_of_many_latencies_those_that_grew_are_drawn():
    points = [tuple((float(day), 1.0 + grows * day) for day in range(3)) for grows in (*[0.0] * 9, 5.0)]
    series = [history.Series(check="a", subject=str(n), unit="µs", points=mine) for n, mine in enumerate(points)]
    (picture,) = history.pictures(series)
    assert "9" in [line.name for line in picture.lines]


def test_a_figure_has_its_picture(here, tmp_path):
    here["document"], out = captured("h200-x4-full"), tmp_path / "report.html"
    path = history.file_of("localhost", os.environ, here=True)
    for number in range(20):
        keep(path, report_of(number, copy(4200.0 - 25 * number)), _boards(here["document"]))
    main(["verify", "--level", "full", "--format", "html", "--out", str(out)])
    page = out.read_text()
    assert ("memory.copy over time" in page, page.count("<polyline") >= 4) == (True, True)
    main(["fleet", "history", "--format", "html", "--out", str(out)])
    assert "verdict skip" not in out.read_text(), "it is the newest run's"


def test_a_history_that_cannot_be_written_is_a_warning(here, tmp_path, capsys):
    (tmp_path / "state").mkdir()
    (tmp_path / "state/verifications").write_text("in the way")
    assert main(["verify", "--level", "quick"]) == 0
    assert "not in the history" in capsys.readouterr().err


def test_a_host_of_that_name_is_not_known(here, tmp_path, says):
    keep(history.file_of("gpu07", os.environ, here=False), report_of(0, copy(1.0)))
    assert "did you mean gpu07?" in says(3, "fleet", "history", "gpu08")
    assert history.file_of("../../etc/x", os.environ, here=False).parent == tmp_path / "state/verifications"
    assert main(["fleet", "history", "gpu07", "--runs", "0"]) == 3
