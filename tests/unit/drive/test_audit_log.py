"""The audit log: what was changed in it, taken out of it or cut off is seen, however many write it."""

import os
import subprocess
import sys

import msgspec
import pytest

from gpusetup.drive.argv import Reach
from gpusetup.drive.audit import FILE, add, line_of, on_record, read
from gpusetup.drive.inventory import unfolded
from gpusetup.drive.playbook import Session
from gpusetup.drive.rundir import new_run
from gpusetup.errors import PreflightError
from tests.refusals import refused


@pytest.fixture
def log(tmp_path):
    """A log of nine lines."""
    for number in range(9):
        add(tmp_path, line_of("token", "collect token", note=f"host gpu{number}"))
    assert read(tmp_path).troubles == ()
    return tmp_path


def lines(home):
    return (home / FILE).read_text().splitlines(keepends=True)


def write(home, told):
    (home / FILE).write_text("".join(told))


def test_a_whole_log_is_whole_and_its_own_alone(log):
    found = read(log)
    assert [line.number for line in found.lines] == list(range(1, 10))
    assert found.head.startswith("9:")
    assert (log / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("harm", "seen"),
    [
        (lambda told: [line.replace("gpu3", "gpu8") for line in told],
         "line 5 does not follow line 4: one of them was changed or taken out"),
        (lambda told: [line.replace("gpu8", "gpu0") for line in told], "line 9 is not the one that was written"),
        (lambda told: told[:3] + told[4:], "line 4 does not follow line 3: one of them was changed or taken out"),
        (lambda told: told[:7], "the end was cut off: 9 lines were written, 7 are there"),
    ],
    ids=["a changed line", "the last line changed", "a line taken out", "an end cut off"],
)  # fmt: skip
def test_a_forgery_is_seen(log, harm, seen):
    write(log, harm(lines(log)))
    assert read(log).troubles[0] == seen


def test_a_line_that_a_crash_cut_is_a_note_and_the_log_goes_on(log):
    with (log / FILE).open("a") as file:
        file.write('{"number":10,"ti')
    assert read(log).notes == ("line 10 was cut, as by a crash",)
    add(log, line_of("token", "collect token", note="after the crash"))
    found = read(log)
    assert found.troubles == ()
    assert [line.number for line in found.lines][-2:] == [9, 11]


def test_on_a_full_disk_nothing_begins_and_an_end_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    whole, session, said = os.write, _session(tmp_path), []
    recorded = (session, "apply", {"a": "driver"}, lambda: {"a": "done"}, said.append)
    with on_record(*recorded):
        monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:20]))
    assert "what became of the hosts is in" in said[0]
    with refused(PreflightError, "GS-941", note="changed nothing"), on_record(*recorded):
        said.append("touched")
    assert len(said) == 1
    assert read(tmp_path).troubles == ()


def test_ten_thousand_hosts_of_a_few_classes_are_a_short_line(tmp_path):
    hosts = {f"gpu-{number:05}": f"install the driver of class {number % 3 // 2}" for number in range(10_000)}
    with on_record(_session(tmp_path), "apply", hosts, lambda: hosts, lambda _text: None):
        pass
    sizes = [len(line) for line in lines(tmp_path)]
    assert max(sizes) < 70_000
    told = msgspec.json.decode(lines(tmp_path)[0])
    assert sorted(name for group in told["groups"] for name in unfolded(group["hosts"])) == sorted(hosts)
    ordered = {name: f"class {number // 5000}" for number, name in enumerate(hosts)}
    with on_record(_session(tmp_path), "apply", ordered, lambda: ordered, lambda _text: None):
        pass
    assert len(lines(tmp_path)[2]) < 1000


def test_a_name_with_a_slip_brings_the_nearest(tmp_path, says):
    with on_record(_session(tmp_path), "apply", {"gpu07": "driver 580"}, dict, lambda _text: None):
        pass
    says(0, "fleet", "audit", tmp_path, "--host", "gpu07")
    assert "did you mean gpu07?" in says(3, "fleet", "audit", tmp_path, "--host", "gpu08")


def test_a_collectors_tokens_and_offers_are_on_record(tmp_path, says):
    folder = tmp_path / "collector"
    says(0, "fleet", "token", folder, "gpu07", "--out", tmp_path / "token")
    says(0, "fleet", "token", folder, "gpu07", "--remove")
    assert [line.note for line in read(folder).lines] == ["host gpu07", "host gpu07: taken back"]
    assert (tmp_path / "token").read_text().strip() not in (folder / FILE).read_text()


def _session(home):
    environment = {"GPUSETUP_STATE": str(home), "HOME": str(home)}
    return Session(new_run(home.parent / "runs"), home, Reach(inventory="fleet.ini"), environment, command="rollback")


def test_many_at_once_make_one_chain(tmp_path):
    program = (
        "import sys; from pathlib import Path; from gpusetup.drive.audit import add, line_of\n"
        "for number in range(25): add(Path(sys.argv[1]), line_of('token', 'collect token', note=f'{sys.argv[2]} {number}'))"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(one)]) for one in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    found = read(tmp_path)
    assert found.troubles == ()
    assert len({line.note for line in found.lines}) == 100
