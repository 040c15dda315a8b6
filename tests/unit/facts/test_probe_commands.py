"""Every external command has a deadline; a hanging one is ended with everything it started."""

import os
import time

from gpusetup.content import host_code

commands = host_code("gpu_probe.commands")


def test_an_answer():
    assert commands.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 5) == {"rc": 3, "out": "out\n", "err": "err\n"}


def test_a_missing_command():
    answer = commands.run(["no-such-command-at-all"], 5)
    assert (answer["rc"], answer["why"]) == (None, "missing")


def test_a_hanging_command_is_ended_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait"
    began = time.monotonic()
    answer = commands.run(["sh", "-c", script], 0.5)
    assert time.monotonic() - began < 60
    assert answer["rc"] is None
    assert "no answer within 0.5 s" in answer["why"]
    for pid in pids.read_text().split():
        for _wait in range(50):
            if not _alive(int(pid)):
                break
            time.sleep(0.05)
        assert not _alive(int(pid)), f"process {pid} was left behind"


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return handle.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_programs_of_the_sbin_folders_are_found(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert commands.run(["ls", "/"], 5)["rc"] == 0


def test_answers_are_in_english(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert commands.run(["sh", "-c", "echo $LC_ALL"], 5)["out"] == "C\n"


def test_bytes_that_are_no_text_do_not_break_it():
    assert commands.run(["printf", "\\377x"], 5)["out"] == "\ufffdx"


def test_standard_input_is_not_ours():
    assert commands.run(["cat"], 5) == {"rc": 0, "out": "", "err": ""}


def test_the_environment_is_kept_otherwise(monkeypatch):
    monkeypatch.setenv("SOMETHING", "kept")
    assert commands.run(["sh", "-c", "echo $SOMETHING"], 5)["out"].strip() == os.environ["SOMETHING"]
