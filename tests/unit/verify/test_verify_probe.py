"""The probe's own machinery, on this machine: deadlines, crashes, workers that are replaced, the mailbox between hosts.

A stand-in worker takes the place of the one that needs CuPy: it speaks the same lines and misbehaves when asked.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params

from gpusetup.content import host_code
from gpusetup.verify.probe import probe_argv
from tests.modules.stand_ins import write
from tests.programs import alive
from tests.stored import stored


@pytest.fixture
def team(probe, monkeypatch, tmp_path):
    """Return a maker of teams whose workers are stand-ins."""
    stand_in = tmp_path / "stand-in.py"
    stand_in.write_text(stored("verify_probe_stand_in.txt"), encoding="utf-8")
    made = []

    def boot(member):
        argv = [sys.executable, "-u", str(stand_in)]
        member.worker = probe.child.Worker(argv, probe.child.environment(), str(tmp_path))

    def make(number=2, **request):
        gpus = [
            {"index": index, "bus_id": f"0000:00:0{index}.0", "mig": False, "slices": [], "processes": []}
            for index in range(number)
        ]
        made.append(probe.measure.Team(sys.executable, gpus, str(tmp_path), request))
        monkeypatch.setattr(made[-1], "_boot", boot)
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_command_that_hangs_is_killed_with_all_it_started(probe, tmp_path):
    answer = probe.child.run(["sh", "-c", f"sleep 60 & echo $! >{tmp_path}/grandchild; wait"], 1)
    assert (answer["error"], answer["deadline"]) == ("timeout", 1)
    ends, grandchild = time.time() + 10, int((tmp_path / "grandchild").read_text())
    while alive(grandchild) and time.time() < ends:
        time.sleep(0.05)
    assert not alive(grandchild)


ASKER = """
import os, sys
from gpusetup.verify.probe import Ask, observe_here
observe_here(Ask(level="smoke", python=sys.argv[1], cuda_home=os.getcwd()), os.environ)
"""


def test_killing_who_asked_ends_the_probe_and_what_measures(tmp_path):
    """SIGKILL leaves nobody time to tidy up: each process of the chain has to notice by itself, and no file is left."""
    written = tmp_path / "tmp"
    written.mkdir()
    python = f"#!/bin/sh\necho $PPID $$ > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pids\nexec sleep 60\n"
    smi, nvcc = stored("verify_probe_smi.txt"), stored("verify_probe_nvcc.txt")
    write(tmp_path, {"nvidia-smi": smi, "bin/nvcc": nvcc, "python": python, "asker.py": ASKER}, 0o755)
    asker = subprocess.Popen(
        [sys.executable, "asker.py", str(tmp_path / "python")],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(written)},
    )
    ends = time.time() + 30

    def until(there):
        while not there() and time.time() < ends:
            time.sleep(0.05)
        return there()

    assert until(lambda: (tmp_path / "pids").exists() and list(written.rglob("tmpxft_1"))), "the chain is up"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert all(map(alive, pids))
    asker.kill()
    asker.wait()
    assert until(lambda: not any(map(alive, pids)))
    assert until(lambda: not list(written.iterdir())), list(written.rglob("*"))


def test_a_crashed_worker_says_how_and_the_next_measurement_runs(team, monkeypatch):
    monkeypatch.setenv("STAND_IN", "crash:memory")
    workers = team(1)
    workers.start()
    answer = workers.together("memory")["0"]
    assert (answer["error"], "SIGSEGV" in answer["message"], "boom" in answer["stderr"]) == ("crashed", True, True)
    assert workers.in_turn("pcie", lambda _: {})["0"]["did"] == "pcie"
    monkeypatch.setenv("STAND_IN", "hang:hello")
    workers.members[0].worker.failure, workers.deadlines["hello"] = {"error": "crashed"}, 1
    assert workers.in_turn("pcie", lambda _: {})["0"]["error"] == "timeout", "a GPU that is lost is named"


def test_one_hung_rank_ends_its_collective_and_nothing_stays(team, monkeypatch):
    monkeypatch.setenv("STAND_IN", "hang:nccl")
    workers = team(2, deadlines={"nccl": 1})
    workers.start()
    (group,) = workers.collectives(workers.ready())["groups"]
    assert {answer["error"] for answer in group["ranks"].values()} == {"timeout"}
    lines = [Path(f"/proc/{member.worker._process.pid}/cmdline") for member in workers.members]
    workers.close()
    assert not [line for line in lines if line.exists() and "stand-in" in line.read_text()]


def test_only_the_gpus_that_were_asked_for(team):
    assert [member.key for member in team(4, gpus=[1, 3]).members] == ["1", "3"]


def test_mig_slices_are_what_is_worked_on(probe):
    slices = "  MIG 3g.71gb     Device  0: (UUID: MIG-aaaa)\n  MIG 1g.18gb     Device  1: (UUID: MIG-bbbb)\n"
    listing = f"GPU 0: NVIDIA H200 (UUID: GPU-1)\n{slices}GPU 1: NVIDIA H200 (UUID: GPU-2)\n"
    gpus = [{"index": index, "mig": index == 0, "slices": [], "processes": []} for index in range(2)]
    probe.observe.mig_slices({"stdout": listing}, gpus)
    assert [part["profile"] for part in gpus[0]["slices"]] == ["3g.71gb", "1g.18gb"]
    team = probe.measure.Team(None, gpus, "/tmp", {})
    assert [member.key for member in team.members] == ["0/MIG-aaaa", "0/MIG-bbbb", "1"]


def test_the_mailbox_hands_the_id_to_who_knows_the_token_and_a_silent_stranger_does_not_block_it(probe):
    with closing(probe.fleet.Mailbox("127.0.0.1", 0, "secret", [1], 1)) as box:
        with pytest.raises(ValueError, match="refused the token"):
            probe.fleet.fetch("127.0.0.1", box.port, "guess", 2)
        with socket.create_connection(("127.0.0.1", box.port)):
            assert probe.fleet.fetch("127.0.0.1", box.port, "secret", 60) == [1]


def test_an_unreachable_first_host_is_said_within_the_deadline(probe, monkeypatch, team):
    monkeypatch.setattr(probe.fleet, "CONNECT_DEADLINE", 1)
    workers = team(1)
    workers.start()
    plan = {"hosts": 2, "address": "127.0.0.1", "token": "t", "local": 1, "world": 2, "sizes": [1 << 20]}
    found = probe.fleet.measure(workers, {**plan, "number": 1, "port": 9, "first": 1})
    assert found["error"] == "unreachable"
    with socket.create_server(("", 0)) as taken:
        found = probe.fleet.measure(workers, {**plan, "number": 0, "port": taken.getsockname()[1], "first": 0})
    assert "cannot be opened" in found["message"]


def test_a_folder_that_a_killed_verification_left_goes_with_the_next(probe, monkeypatch, tmp_path):
    """Not one of today, nor one that is held for days, nor what only bears the name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    two_days_ago = time.time() - 2 * 24 * 3600
    for name in ("gpusetup-verify-old", "gpusetup-verify-new", "someones-old", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nccl-0.log").write_text("", encoding="utf-8")
    (tmp_path / "gpusetup-verify-link").symlink_to(tmp_path / "elsewhere")
    with probe.scratch.folder() as held:
        for path in (held, *(tmp_path / name for name in ("gpusetup-verify-old", "someones-old", "elsewhere"))):
            os.utime(path, (two_days_ago, two_days_ago))
        assert probe.observe.observe({"level": "quick"})["quick"]
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"gpusetup-verify-new", "gpusetup-verify-link", "someones-old", "elsewhere", Path(held).name}
    assert (tmp_path / "elsewhere/nccl-0.log").exists()
    assert not Path(held).exists()
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(os, "statvfs", lambda path: Mock(f_flag=os.ST_NOEXEC * (path == str(tmp_path))))
    with probe.scratch.folder() as held:
        assert Path(held).parent.name == "elsewhere", "no program may run from the usual folder"


def test_only_interpreters_by_absolute_path(probe):
    assert probe.observe.interpreter({"python": "python3"})["path"] is None
    assert probe.observe.interpreter({"python": sys.executable})["path"] == sys.executable
    assert probe.observe.interpreter({"python": "/nowhere/python"})["error"] is not None


def test_kernel_processor_lists(probe):
    assert [probe.environment.processors(text) for text in ("0-3,8", "")] == [{0, 1, 2, 3, 8}, set()]


@pytest.mark.parametrize("where", ["checkout", "host"])
def test_collections_that_are_installed_into_a_python_do_not_hide_ours(tmp_path, where):
    (tmp_path / "site/ansible_collections").mkdir(parents=True)
    (tmp_path / "site/ansible_collections/__init__.py").write_text("")
    argv = probe_argv()
    if where == "host":
        for place, text in params.program(host_code("programs").packed("gpu_verify")).items():
            (tmp_path / "host" / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "host" / place).write_text(text)
        argv = [sys.executable, str(tmp_path / "host/gpu_measure/observe.py")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    request = '{"level": "no such"}'
    done = subprocess.run(argv, input=request, env=environment, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" not in done.stderr
    assert "level" in done.stdout + done.stderr


def test_lines_of_one_kind_hide_no_xid_and_what_a_program_prints_last_hides_no_answer(probe):
    xid = "kernel: NVRM: Xid (PCI:0000:1a:00): 79, pid=1"
    assert xid in probe.collect._about_gpus("\n".join([xid, *["NVRM: rm_init failed"] * 900]))
    told = probe.child.run(["sh", "-c", "echo '{\"a\": 1}'; echo '{bye}'"], 5)
    assert probe.frameworks.last_json(told) == {"a": 1}


@pytest.mark.parametrize(("gpus", "asked"), [(1, False), (2, True)])
def test_one_gpu_alone_is_not_asked_how_it_reaches_others(probe, monkeypatch, gpus, asked):
    asks = []
    monkeypatch.setattr(probe.collect, "proc_gpus", lambda: dict.fromkeys(map(str, range(gpus))))
    monkeypatch.setattr(probe.collect, "_smi", lambda *words: asks.append(words) or {"stdout": "GPU0 X"})
    probe.collect.topology()
    assert bool(asks) is asked


def test_a_hung_worker_is_killed_named_and_replaced(team, monkeypatch):
    monkeypatch.setenv("STAND_IN", "hang:smoke")
    workers = team(1, deadlines={"smoke": 1})
    answer = workers.start()["0"]["smoke"]
    assert (answer["error"], "no answer to smoke within 1 s; killed" in answer["message"]) == ("timeout", True)
    monkeypatch.setenv("STAND_IN", "")
    assert [member.key for member in workers.ready()] == ["0"]
    assert workers.together("memory", members=workers.ready())["0"]["did"] == "memory"


def test_a_simulated_machine_is_read_from_its_folder(probe, tmp_path):
    device = tmp_path / "sys/bus/pci/devices/0000:41:00.0"
    device.mkdir(parents=True)
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330")):
        (device / name).write_text(text + "\n", encoding="utf-8")
    found = probe.observe.observe({"level": "smoke", "simulated_root": str(tmp_path)})
    assert (found["simulated"], found["started"] >= device.stat().st_mtime - 1) == (True, True)
    assert [gpu["pci_id"] for gpu in found["facts"]["gpus"]] == ["10de:2330"]
