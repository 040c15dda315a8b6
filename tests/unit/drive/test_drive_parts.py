"""Arguments, environment, overlay, names, passwords, run directories; no password stands in what a run writes down."""

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpusetup.cli.main import main
from gpusetup.components.parsing import holds_login, without_login
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


CAPTURED = Path(__file__).parents[2] / "hosts/ubuntu24.04-rtx4090-open/root"


def recorded(place, command, variables, *words):
    """Run a command on a host with these variables; return everything that it wrote."""
    inventory = place / "inventory.ini"
    inventory.write_text(f"here ansible_connection=local gpusetup_become=false {variables}\n")
    main([command, str(inventory), "--format", "json", *words])
    files = [*(place / "state").rglob("*"), *place.glob("facts.json")]
    return {path: path.read_text(errors="replace") for path in files if path.is_file()}


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))


def test_the_record_of_a_run_knows_the_proxy_without_its_password(tmp_path):
    variables = "gpusetup_candidates=false gpusetup_proxy=http://user:p@ss-51ab2e@proxy.example:3128"
    written = recorded(tmp_path, "facts", variables, "--out", str(tmp_path / "facts.json"))
    assert any("proxy.example:3128" in text for text in written.values()), "it was said that there is one"
    assert not [path for path, text in written.items() if "51ab2e" in text]


@pytest.mark.parametrize(
    "variables",
    [
        "gpusetup_source=https://user:pw-51ab2e@mirror.example/nvidia",
        "gpusetup_source=https://user:pw-51/ab2e-51ab2e@mirror.example/nvidia",
        "gpusetup_source_key=https://user:pw-51ab2e@mirror.example/key.asc",
        "gpusetup_proxy=user:pw-51ab2e@proxy.example:3128",
        "gpusetup_proxy=user:pw/51ab2e@proxy gpusetup_source=nowhere",
        "gpusetup_proxy=\"{{ 'http://user:pw-51ab2e@' + nothing_of_the_kind }}\"",
        """gpusetup_extra_sources='[{"name": "x", "urls": ["https://u:pw-51ab2e@h/"], "fingerprints": [], "key": "k"}]'""",
    ],
)
def test_an_address_that_is_refused_for_its_password_leaves_it_nowhere(tmp_path, capfd, variables):
    written = recorded(tmp_path, "plan", f"gpusetup_simulated_root={CAPTURED} {variables}", "--", "-vvvv")
    assert any('"event": "hosts"' in text for text in written.values())
    assert not [path for path, text in written.items() if "51ab2e" in text]
    assert "51ab2e" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://user:p@ss@proxy:1", "http://***@proxy:1"), ("https://user:pa/ss@proxy/x", "https://***@proxy/x"),
        ("https://mirror:8080/pool/x@1", ""), ("https://[::1]:80/pool/x@1", ""), ("/srv/mirror@home", ""),
        ("nvidia", ""),
    ],
)  # fmt: skip
def test_only_a_login_is_taken_out_of_an_address(address, told):
    assert without_login(address) == (told or address)
    assert holds_login(address) is bool(told)
