"""What `./dev bench peers` tells of its runs."""

import re
from pathlib import Path

from bench.peers_told import Contender, Record, Run, page, recorded, table

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
