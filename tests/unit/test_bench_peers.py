"""What `./dev bench peers` tells of its runs, and that it says how to fetch what it does not ship."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from bench import peers
from bench.peers import Run, picture, table

GOOD = [Run(50.0, 13, 0, rebooted=False), Run(40.0, 20, 0, rebooted=True), Run(4.0, 1, 0, rebooted=False)]
LOST = [Run(45.0, 23, 0, rebooted=False), Run(23.0, 19, 0, rebooted=False), Run(29.0, 19, 0, rebooted=False)]
FAILED = [Run(5.0, 3, 2, rebooted=False, last="no package")] * 3


def test_a_lost_reboot_is_told_by_what_the_host_did_and_a_failure_says_nothing_of_it():
    ours, role, deepops, absent = table({"a": GOOD, "b": LOST, "c": FAILED}, ["/peers/d"]).splitlines()[2:]
    assert ours.endswith("| made up for |")
    assert "40.0 s, 20 operations, rebooted" in ours
    assert role.endswith("| stays lost |")
    assert deepops.endswith("| not seen: it failed |")
    assert deepops.count("FAILED (2)") == 3
    assert "not here" in absent


def test_the_picture_has_a_bar_for_each_run_as_long_as_it_took():
    bars = [
        float(bar.get("width"))
        for bar in ET.fromstring(picture({"a": GOOD, "b": LOST})).iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(bars) == 6
    assert bars[0] == max(bars)
    assert abs(bars[2] / bars[0] - 4 / 50) < 0.01


def test_without_the_work_of_others_it_says_how_to_fetch_it(monkeypatch, capsys):
    monkeypatch.delenv("GPUSETUP_PEERS", raising=False)
    monkeypatch.setattr(peers.machine, "why_not", lambda: "")
    assert peers.main() == 0
    said = capsys.readouterr().out
    assert "nvidia.nvidia_driver,v2.3.1" in said
    assert "3957a42f" in said
