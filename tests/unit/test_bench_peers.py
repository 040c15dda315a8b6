"""What `./dev bench peers` tells of its runs, and that it says how to fetch what it does not ship."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from bench import peers
from bench.peers_steps import BETWEEN, Step, steps
from bench.peers_told import Contender, Record, Run, page, recorded, table
from bench.processor import Meter, Used

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def run(seconds, operations, *, code=0, rebooted=False, last=""):
    return Run(seconds=seconds, operations=operations, code=code, rebooted=rebooted, last=last)


GOOD = (run(50.0, 13, rebooted=True), run(4.0, 1), run(45.0, 12), run(40.0, 20, rebooted=True))
LOST = (run(45.0, 23, rebooted=True), run(23.0, 19), run(29.0, 19), run(20.0, 19))
FAILED = (run(5.0, 3, code=2, last="no package"),) * 4


def record(**runs):
    found = tuple(Contender(name=name, version="1", ansible="ansible-core 2", runs=one) for name, one in runs.items())
    return Record(date="2026-01-01", driver="580", contenders=found)


def test_a_lost_reboot_is_told_by_what_the_host_did_afterwards():
    ours, role, deepops, absent = table(record(a=GOOD, b=LOST, c=FAILED, d=())).splitlines()[2:]
    assert ours.endswith("| done later |")
    assert "40.0 s, 20 operations, rebooted" in ours
    assert role.endswith("| stays lost, without a message |")
    assert deepops.endswith("| stays lost; the run fails each time |")
    assert deepops.count("FAILED (2)") == 4
    assert "was not there" in absent


def test_the_page_has_the_last_words_of_what_failed():
    assert "no package" in page(record(c=FAILED))
    assert "last words" not in page(record(a=GOOD))


def test_the_readme_says_what_was_recorded():
    row = next(line for line in README.splitlines() if line.startswith("| second run, one host: remote operations"))
    told = [int(re.search(r"\d+", cell)[0]) for cell in row.split("|")[2:5]]
    assert told == [who.runs[1].operations for who in recorded().contenders]


def test_without_the_work_of_others_it_says_how_to_fetch_it(monkeypatch, capsys):
    monkeypatch.delenv("GPUSETUP_PEERS", raising=False)
    monkeypatch.setattr(peers.machine, "why_not", lambda: "")
    assert peers.main() == 0
    said = capsys.readouterr().out
    assert "nvidia.nvidia_driver,v2.3.1" in said
    assert "3957a42f" in said


def test_each_second_of_a_run_is_in_one_step_and_each_operation_too():
    events = [
        {"event": "start", "time": 11.0}, {"event": "begin", "time": 12.0, "task": "1", "name": "role : look"},
        {"event": "ok", "time": 14.0, "task": "1", "name": "role : look"},
        {"event": "begin", "time": 14.0, "task": "2", "name": "nothing to ask"},
        {"event": "skipped", "time": 14.5, "task": "2", "name": "nothing to ask"},
        {"event": "begin", "time": 15.0, "task": "3", "name": "look"},
        {"event": "retry", "time": 16.0, "task": "3", "name": "look"},
        {"event": "failed", "time": 18.0, "task": "3", "name": "look"},
    ]  # fmt: skip
    found = steps(events, [11.5, 12.5, 15.5, 17.5], 10.0, 20.0, lambda moment: Used(moment / 10, moment / 100))
    assert found == (
        Step(name="look", times=2, seconds=5.0, operations=3, controller=0.5, host=0.05),
        Step(name=BETWEEN, times=1, seconds=5.0, operations=1, controller=0.5, host=0.05),
    )
    assert "Where the seconds" not in page(record(a=GOOD))
    told = page(record(a=(Run(seconds=10.0, operations=4, steps=found), *GOOD[1:])))
    assert "| look (2 times) | 5.0 | 3 | 0.5 | 0.1 |" in told


def test_what_a_command_works_is_told_apart_from_what_is_worked_beside_it():
    meter = Meter()
    assert meter.at(0.0) == Used()  # nothing was counted yet
    meter.begin()
    try:
        with meter.command():
            subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
        used = meter.at(time.time())
        assert used == Used() or used.controller > 10 * used.hosts
    finally:
        meter.end()
    assert not [*Path("/sys/fs/cgroup").glob(f"**/gpusetup-bench-{os.getpid()}-*")]
