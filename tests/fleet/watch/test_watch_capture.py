"""Rows of `gpusetup watch --csv` on an H100 under load beside what nvidia-smi and dmon wrote in the same seconds."""

import csv
import json
import re
from pathlib import Path

import jsonschema
import pytest

from gpusetup.cli.export import schema_of
from gpusetup_fleet.watch.documents import COLUMNS

CAPTURE = Path(__file__).parents[2] / "fixtures/watch/h100-load"


@pytest.fixture
def ours():
    with (CAPTURE / "gpus.csv").open() as file:
        return {row["time"][11:19]: row for row in csv.DictReader(file)}


@pytest.fixture
def smi():
    with (CAPTURE / "smi.csv").open() as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        return {row["timestamp"].split()[1][:8]: row for row in rows}


def test_the_figures_are_nvidia_smi_s(ours, smi):
    both = sorted(set(ours) & set(smi))
    assert len(both) >= 10
    for second in both:
        one, other = ours[second], smi[second]
        assert (one["memory_used_mib"], one["memory_total_mib"]) == (
            other["memory.used [MiB]"],
            other["memory.total [MiB]"],
        )
        assert abs(int(one["utilization_percent"]) - int(other["utilization.gpu [%]"])) <= 1
        assert abs(float(one["power_watts"]) / float(other["power.draw [W]"]) - 1) < 0.15
        assert abs(int(one["temperature_celsius"]) - int(other["temperature.gpu"])) <= 12, "it jumps with the load"
        assert (one["throttle"], other["clocks_event_reasons.active"]) == ("sw_power_cap", "0x0000000000000004")
        assert one["memory_clock_mhz"] == other["clocks.current.memory [MHz]"]


def test_pcie_is_what_dmon_counts(ours):
    lines = [line.split() for line in (CAPTURE / "dmon.txt").read_text().splitlines() if re.match(r" \d\d:", line)]
    dmon = sorted(float(words[-2]) * 1e6 for words in lines)
    rates = sorted(float(row["pcie_rx_bytes_per_second"]) for row in ours.values())
    middle = len(rates) // 2
    assert abs(rates[middle] / dmon[len(dmon) // 2] - 1) < 0.1
    assert rates[0] > 30e9, "no look is a counter that began again"


def test_the_captured_documents_are_today_s():
    for name in ("busy.json", "idle.json"):
        jsonschema.validate(json.loads((CAPTURE / name).read_text()), schema_of("watch"))
    with (CAPTURE / "gpus.csv").open() as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
