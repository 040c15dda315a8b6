"""The pages about the live view and about comparing hosts: every block is run, and says what the page says.

The live view looks through a stand-in for NVIDIA's library that tells what an H100 under load told.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpusetup.model.facts import Facts
from gpusetup.model.facts_machine import NvLinks, Settings, Way
from gpusetup.model.verdict import Result
from tests.hosts.machines import machine

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/guides" / name for name in ("watch.md", "compare.md")]
CAPTURE = ROOT / "tests/fixtures/watch/h100-load"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (page.stem, command, shown)
    for page in PAGES
    for block in BLOCK.findall(page.read_text(encoding="utf-8"))
    for command, shown in re.findall(r"^\$ (gpusetup .*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]
REPLACE = msgspec.structs.replace


def h100_told():
    """What the library has to tell for the captured look."""
    (gpu,) = json.loads((CAPTURE / "busy.json").read_text())["hosts"]["localhost"]["gpus"]
    same = ("name", "uuid", "utilization", "memory_utilization", "memory_used", "memory_total", "temperature", "clock", "clock_limit", "memory_clock", "memory_temperature")  # fmt: skip
    lines = [f"0 {name} {gpu[name]}" for name in same]
    lines += [
        f"0 power {gpu['power'] * 1000:.0f}", f"0 power_limit {gpu['power_limit'] * 1000:.0f}", "0 reasons 0x4",
        "0 mig 0",
    ]  # fmt: skip
    lines += [f"0 pcie_sampled_tx {gpu['pcie_tx'] / 1024:.0f}", f"0 pcie_sampled_rx {gpu['pcie_rx'] / 1024:.0f}"]
    lines += [f"0 compute {os.getpid()}:{gpu['processes'][0]['memory']}"]
    return "\n".join(["* count 1", "* driver 580.159.04", *lines]) + "\n"


def fleet(folder):
    """Six hosts like the captured one, of which four differ, and what they measured."""
    host = machine("ubuntu24.04-h200x8-keep")
    alike = {"vbios": "96.00.A5.00.1A", "nvlinks": NvLinks(up=18, down=0, slowest=26.562)}
    way, settings = (
        Way(acs_redirect=(), iommu="identity", bridges=2), Settings(bios_version="2.1", smt=True, iommu=True),
    )  # fmt: skip
    hosts, figures = {}, {}
    observed = ROOT / "tests/fixtures/observations/h200-x4-full.json"
    done = subprocess.run(
        [sys.executable, "-m", "gpusetup", "verify", "--from", str(observed), "--format", "json"],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    verified = json.loads(done.stdout)
    (measured,) = verified["hosts"].values()
    for number in range(6):
        name = f"gpu-{number}"
        redirect = REPLACE(way, acs_redirect=("0000:00:01.0",)) if number == 4 else way
        gpus = [REPLACE(gpu, way=redirect, **alike) for gpu in host.gpus]
        if number == 2:
            gpus[3] = REPLACE(gpus[3], vbios="96.00.A1")
        driver = REPLACE(host.driver, version="570.1") if number == 4 else host.driver
        hosts[name] = REPLACE(host, gpus=tuple(gpus), driver=driver, settings=REPLACE(settings, smt=number != 2))
        figures[name] = [scaled(msgspec.convert(one, Result), number) for one in measured]
    (folder / "facts.json").write_bytes(msgspec.json.encode(Facts(hosts=hosts)))
    (folder / "verify.json").write_bytes(msgspec.json.encode(verified | {"hosts": figures, "summary": {}}))


def scaled(result, number):
    def item(one):
        if not isinstance(one.measured, float):
            return one
        slow = 0.9 if (number, result.id, one.subject) == (3, "memory.copy", "GPU 2") else 1.0
        return REPLACE(one, measured=one.measured * slow * (1 + 0.002 * (number * 7 % 5 - 2)))

    return REPLACE(result, items=tuple(map(item, result.items)))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "told").write_text(h100_told())
    (folder / "tests").symlink_to(ROOT / "tests")
    fleet(folder)
    return folder


def test_every_block_is_here():
    assert len(BLOCKS) == 4
    assert sum(page.read_text().count("```console") for page in PAGES) == 4


@pytest.mark.parametrize(
    ("page", "command", "shown"), BLOCKS, ids=[f"{page}: {command}" for page, command, _ in BLOCKS]
)
def test_the_answer_is_today_s(page, command, shown, place, nvml):
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "GPUSETUP_MATRIX")} | {
        "LD_LIBRARY_PATH": str(nvml.parent), "NVML_STAND_IN": str(place / "told"), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8",
        "GPUSETUP_STATE": str(place / "state"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, cwd=place, env=environment,
        timeout=120, check=False,
    )  # fmt: skip
    lines = [line for line in shown.splitlines() if line.strip()]
    wanted = int(lines.pop()[6:-1]) if lines[-1].startswith("[exit ") else 0
    assert done.returncode == wanted, done.stderr
    answer = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    at = 0
    for line in lines:
        if line != "…":
            assert line in answer[at:], f"not in the answer after line {at}: {line}\n" + "\n".join(answer)
            at = answer.index(line, at) + 1
