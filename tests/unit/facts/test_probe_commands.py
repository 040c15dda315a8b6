"""Every external command has a deadline; a hanging one is ended with everything it started."""

import time

import pytest

from gpusetup.content import host_code

commands = host_code("gpu_probe.commands")


@pytest.mark.parametrize(
    ("argv", "variable", "answer"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 3"], None, {"rc": 3, "out": "out\n", "err": "err\n"}),
        (["no-such-command-at-all"], None, {"rc": None, "why": "missing"}),
        (["ls", "/"], ("PATH", "/nowhere"), {"rc": 0}),  # programs of the sbin folders are found
        (["sh", "-c", "echo $LC_ALL"], ("LC_ALL", "de_DE.UTF-8"), {"out": "C\n"}),  # answers are in English
        (["sh", "-c", "echo $SOMETHING"], ("SOMETHING", "kept"), {"out": "kept\n"}),  # the rest is kept
        (["printf", "\\377x"], None, {"out": "\ufffdx"}),  # bytes that are no text
        (["cat"], None, {"rc": 0, "out": "", "err": ""}),  # standard input is not ours
    ],
)
def test_what_a_command_answers(monkeypatch, argv, variable, answer):
    if variable:
        monkeypatch.setenv(*variable)
    found = commands.run(argv, 5)
    assert found | answer == found


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
