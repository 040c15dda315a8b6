"""Arguments, environment, overlay, names, passwords, run directories: the pure and small parts of drive."""

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpusetup.drive.argv import ansible_environment
from gpusetup.drive.inventory import SELECTED, check_address, check_host_name, template_in, write_overlay
from gpusetup.drive.rundir import new_run, occupy, runs_in_order, state_home, write_whole
from gpusetup.drive.secrets import password_pipe
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.rollout.batches import keep_rollout, stopped_rollout, unfinished


def environment(outside, *configured):
    places = {"collections": Path("/c"), "package": Path("/p/gpusetup"), "events": Path("/e")}
    return ansible_environment(outside, **places, configured=frozenset(configured))


def test_what_a_person_configured_stands():
    kept = environment({"ANSIBLE_FORKS": "3"}, ("ssh_connection", "pipelining"))
    assert kept["ANSIBLE_FORKS"] == "3"
    assert not {"ANSIBLE_PIPELINING", "ANSIBLE_HOST_KEY_CHECKING"} & kept.keys()


def test_a_home_with_a_very_long_path_does_not_make_hosts_unreachable():
    usual = environment({"HOME": "/home/somebody"})
    assert "ControlMaster=auto" in usual["ANSIBLE_SSH_ARGS"]
    assert "ANSIBLE_SSH_CONTROL_PATH_DIR" not in usual
    home = {"HOME": "/home/" + "ü" * 50}
    assert environment(home | {"XDG_RUNTIME_DIR": "/run/user/7"})["ANSIBLE_SSH_CONTROL_PATH_DIR"] == "/run/user/7"
    alone = environment(home)["ANSIBLE_SSH_ARGS"]
    assert "Control" not in alone
    assert "ServerAliveInterval" in alone
    assert "ControlMaster" in environment(home, ("ssh_connection", "control_path_dir"))["ANSIBLE_SSH_ARGS"]


HOSTILE = ("-oProxyCommand=x", "a b", "a;b", "$(x)", "a/b", "../x", "a'b", "", "a\nb", "{{ x }}", "a`b`", "x" * 300)
USUAL = ("h1", "gpu-01.example.com", "10.0.0.1", "fe80::1", "_x", "node_7")


@pytest.mark.parametrize("name", [*HOSTILE, *USUAL])
def test_usual_names_are_taken_and_hostile_ones_refused(name):
    assert [bool(check(name)) for check in (check_host_name, check_address)] == [name in HOSTILE] * 2


def test_template_marks_from_a_host_never_reach_ansible(tmp_path):
    assert template_in({"a": [{"b": "{{ lookup('pipe', 'id') }}"}]}) == "a.0.b"
    assert template_in({"{% x %}": 1})
    assert not template_in({"a": ["{", "%"], "b": 3})
    with pytest.raises(BadInputError, match="template markers"):
        write_overlay(tmp_path / "o", {"a": {"x": "{{ 1 }}"}})


def test_the_overlay_is_private_and_read_by_ansible_for_each_host_apart(tmp_path):
    (tmp_path / "hosts.ini").write_text("a x=0\na.json\nb\n")
    folder = write_overlay(tmp_path / "o", {"a": {"x": 1, "gpu_list": [1, "two"]}, "a.json": {"x": 2}})
    assert {path.stat().st_mode & 0o077 for path in folder.rglob("*")} == {0}
    argv = [sys.executable, "-m", "ansible", "inventory", "-i", tmp_path / "hosts.ini", "-i", folder, "--list"]
    told = json.loads(subprocess.run(argv, capture_output=True, check=True, text=True).stdout)
    assert told[SELECTED]["hosts"] == ["a", "a.json"]
    a, other = (told["_meta"]["hostvars"][name] for name in ("a", "a.json"))
    assert (a["x"], a["gpu_list"], other["x"], "gpu_list" in other) == (1, [1, "two"], 2, False)


def test_a_password_passes_through_a_pipe_and_leaves_nothing(tmp_path):
    with password_pipe(tmp_path, "become", "s3cret") as pipe:
        for _process in range(2):
            with pipe.open("rb", 0) as reader:
                told = reader.read(7)
                time.sleep(0.5)  # a busy machine
                assert told + reader.read() == b"s3cret\n"
        assert pipe.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []
    with password_pipe(tmp_path, "become", "never read"):
        pass
    assert list(tmp_path.iterdir()) == []
    with password_pipe(tmp_path, "become", None) as nothing:
        assert nothing is None


def test_two_applies_never_meet_on_a_host(tmp_path):
    with occupy(tmp_path, ["a", "b"], "apply"):
        with pytest.raises(PreflightError, match="is working on b") as caught, occupy(tmp_path, ["b", "c"], "apply"):
            pass
        assert str(os.getpid()) in caught.value.context
        with occupy(tmp_path, ["c"], "apply"):
            pass
    code = f"from gpusetup.drive.rundir import occupy\nimport os\nfrom pathlib import Path\nwith occupy(Path({str(tmp_path)!r}), ['a'], 'apply'): os._exit(1)"
    subprocess.run([sys.executable, "-c", code], check=False)
    assert list((tmp_path / "locks").glob("*.json")), "a dead process has left it, and holds nothing"
    with occupy(tmp_path, ["a"], "apply"):
        pass


def test_where_state_lives():
    assert state_home({"HOME": "/h"}) == Path("/h/.local/state/gpusetup")
    assert state_home({"HOME": "/h", "XDG_STATE_HOME": "/x"}) == Path("/x/gpusetup")
    assert state_home({"GPUSETUP_STATE": "/s"}) == Path("/s")


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
