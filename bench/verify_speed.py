"""What verification costs beside the GPU's own time: looking at this machine, judging a captured one, reporting."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from bench.found import Found, Row
from gpusetup.cli.verify import FORMATS
from gpusetup.report.formats import render
from gpusetup.report.verification import verification_report
from gpusetup.verify.machine import Machine
from gpusetup.verify.probe import probe_argv
from gpusetup.verify.registry import judge
from tests.lab.health import stand_in

CAPTURE = Path(__file__).resolve().parents[1] / "tests/fixtures/observations/h200-x4-full.json"
EIGHT = CAPTURE.with_name("h200-x8-quick.json")
QUICK_BOUND = 3.0
CPU_BOUND = 1.0
"""CPU seconds allowed per run of a timer, a prolog or Slurm's health program."""


def median(work: Callable[[], object], times: int = 5) -> float:
    """Return the median seconds of several runs."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def look_cpu() -> float:
    """Return the median CPU seconds of five timer runs on eight GPUs, with a stand-in for nvidia-smi."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        stand_in(Path(folder), folder, EIGHT)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "GPUSETUP_STATE": folder}
        words = ["verify", "--level", "quick", "--when-idle", "--on-bad", "true", "--format", "json"]
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            argv = [sys.executable, "-m", "gpusetup", *words]
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert '"pcie.link"' in done.stdout, done.stderr
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(found)


def main() -> Found:
    """Measure."""
    document = json.loads(CAPTURE.read_text(encoding="utf-8"))
    bare = median(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    probe = median(lambda: subprocess.run(probe_argv(), input=b'{"level": "quick"}', capture_output=True, check=True))
    command = median(
        lambda: subprocess.run(
            [sys.executable, "-m", "gpusetup", "verify", "--level", "quick", "--format", "json"],
            capture_output=True,
            check=False,
        )
    )
    look = look_cpu()
    judge(Machine(document))
    rows = [
        Row(what="the probe, level quick, here", value=probe * 1e3, unit="ms", plain=bare * 1e3),
        Row(
            what="verify --level quick, here", value=command * 1e3, unit="ms", plain=bare * 1e3, bound=QUICK_BOUND * 1e3
        ),
        Row(
            what="processor time of a timer's look",
            value=look * 1e3,
            unit="ms",
            plain=bare * 1e3,
            bound=CPU_BOUND * 1e3,
        ),
        Row(what="judging a machine with 4 GPUs", value=median(lambda: judge(Machine(document))) * 1e3, unit="ms"),
    ]
    hosts = {f"gpu{number}": document for number in range(16)}
    report = verification_report(hosts, level="full", started=datetime.now(timezone.utc), seconds=1)
    for name in FORMATS:
        render(report, name)
        seconds = median(partial(render, report, name), 3)
        size = len(render(report, name)) / 1024
        rows.append(Row(what=f"report on 16 such, {name}, {size:,.0f} KiB", value=seconds * 1e3, unit="ms"))
    return Found(plain="python3 -c pass", rows=tuple(rows))
