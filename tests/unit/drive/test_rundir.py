"""Run folders: the oldest go, but never one that lives or that --resume would go on with, whatever the clock says."""

import subprocess
import sys
from datetime import datetime, timezone

import pytest

from gpusetup.drive.rundir import new_run, runs_in_order, write_whole
from gpusetup.rollout.batches import keep_rollout, stopped_rollout, unfinished


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


def test_a_file_is_written_whole_and_no_link_is_followed(tmp_path):
    (tmp_path / "victim").write_text("x")
    (tmp_path / ".a.part").symlink_to("victim")
    write_whole(tmp_path / "a", b"new")
    assert [(tmp_path / name).read_text() for name in ("a", "victim")] == ["new", "x"]
