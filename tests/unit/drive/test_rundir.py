"""Run folders: the oldest go, but never one that lives or that --resume would go on with, whatever the clock says."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest

from gpusetup.drive.rundir import new_run, runs_in_order, write_whole
from gpusetup.rollout.batches import keep_rollout, stopped_rollout, unfinished

CLAIMS = """
import sys
from pathlib import Path
from gpusetup.drive.rundir import occupy
home, host = Path(sys.argv[1]), sys.argv[2]
for _ in range(60):
    with occupy(home, [host], "apply"):
        pass
"""


def test_runs_are_kept_and_the_oldest_go(tmp_path):
    runs = [new_run(tmp_path).id for _ in range(53)]
    assert len(set(runs)) == 53
    assert [run.name for run in runs_in_order(tmp_path)] == runs[3:]


def test_another_process_run_is_seen_to_live(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom gpusetup.drive.rundir import new_run\n"
        "run = new_run(Path(sys.argv[1]))\nprint(run.path, flush=True)\nsys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        folder = other.stdout.readline().strip()
        for _ in range(51):
            new_run(tmp_path)
        assert folder in map(str, runs_in_order(tmp_path))
        other.kill()
        other.wait()
    new_run(tmp_path)
    assert folder not in map(str, runs_in_order(tmp_path))


def test_a_clock_that_was_set_back_makes_nobody_older(tmp_path):
    ahead = datetime(2099, 1, 1, tzinfo=timezone.utc)
    first = [new_run(tmp_path, ahead).id for _ in range(50)]
    later = [new_run(tmp_path, datetime(2001, 1, 1, tzinfo=timezone.utc)).id for _ in range(3)]
    kept = [run.name for run in runs_in_order(tmp_path)]
    assert kept[-3:] == later
    assert set(kept[:-3]) < set(first)
    assert len(kept) == 50


def test_what_resume_would_go_on_with_is_kept(tmp_path):
    stopped = new_run(tmp_path)
    keep_rollout(stopped, "hosts.ini", "1,50%", {}, ["a", "b"])
    name = stopped.id
    del stopped
    for _ in range(60):
        new_run(tmp_path, spared=unfinished)
    assert stopped_rollout(tmp_path, "hosts.ini").run == name
    done = new_run(tmp_path, datetime(2001, 1, 1, tzinfo=timezone.utc), spared=unfinished)
    keep_rollout(done, "hosts.ini", "", {}, [])  # a newer one left nobody, though its name is older
    for _ in range(2):
        new_run(tmp_path, spared=unfinished)
    assert name not in [run.name for run in runs_in_order(tmp_path)]


@pytest.mark.parametrize(
    "torn", [b"", b"{", b"[]", b'{"inventory": "x"}', b'{"inventory": "x", "left": 3, "batch": ""}']
)
def test_a_torn_record_of_a_rollout_is_passed_over(tmp_path, torn):
    run = new_run(tmp_path)
    (run.path / "rollout.json").write_bytes(torn)
    assert unfinished(runs_in_order(tmp_path)) == []


def test_many_processes_claim_and_let_go_of_their_own_hosts_at_once(tmp_path):
    argv = [sys.executable, "-c", CLAIMS, str(tmp_path)]
    many = [subprocess.Popen([*argv, f"host{number}"], stderr=subprocess.PIPE, text=True) for number in range(6)]
    said = [process.communicate(timeout=120)[1] for process in many]
    assert said == [""] * 6
    assert not list((tmp_path / "locks").glob("*.json"))


def test_two_writers_leave_one_whole_file_and_follow_no_link(tmp_path):
    (tmp_path / "victim").write_text("x")
    (tmp_path / ".a.part").symlink_to("victim")
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(lambda turn: write_whole(tmp_path / "a", b"%d" % turn * 4096), range(200)))
    assert len(set((tmp_path / "a").read_bytes().decode())) <= 3
    assert (tmp_path / "victim").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.part", "a", "victim"]
