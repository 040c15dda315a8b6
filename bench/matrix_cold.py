"""Cold start: one lookup and one resolve in a fresh process, against a bare `python3 -c pass`.

The runs are interleaved and the fastest of each counts: on a machine that others use too, the fastest run is the one
that was disturbed least. Bounds are on processor time, which is what a cold start takes on an idle machine; the
clock is shown beside it. Bytecode is written first, as installing the package does.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

from bench.found import Found, Row

RUNS = 25
BARE = "python3 -c pass"
COMMANDS = {
    BARE: ((sys.executable, "-c", "pass"), None),
    "matrix": ((sys.executable, "-m", "gpusetup", "matrix", "torch==2.6.*", "--format", "json"), 10),
    "matrix, for people": ((sys.executable, "-m", "gpusetup", "matrix", "torch==2.6.*"), 10),
    "resolve": ((sys.executable, "-m", "gpusetup", "resolve", "torch==2.6.*", "--format", "json"), 12),
    "resolve, nothing asked": ((sys.executable, "-m", "gpusetup", "resolve", "--format", "json"), 12),
    "matrix vllm": ((sys.executable, "-m", "gpusetup", "matrix", "vllm", "--format", "json"), 14),
    "resolve vllm": ((sys.executable, "-m", "gpusetup", "resolve", "vllm", "--format", "json"), 14),
}


def once(argv: tuple[str, ...], environment: dict[str, str]) -> tuple[float, float]:
    """Return the CPU time and the duration of a run."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=environment)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> Found:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for argv, _ in COMMANDS.values():
            once(argv, environment)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        for _ in range(RUNS):
            for name, (argv, _) in COMMANDS.items():
                found[name].append(once(argv, environment))
    fastest = {name: tuple(min(run[side] for run in runs) for side in (0, 1)) for name, runs in found.items()}
    bare = fastest[BARE]
    rows = []
    for name, (_, bound) in COMMANDS.items():
        if name == BARE:
            continue
        cpu, wall = (1e3 * seconds for seconds in fastest[name])
        of_cpu = Row(what=name, value=cpu, unit="ms of processor", plain=bare[0] * 1e3, bound=bound, of="ratio")
        rows += [of_cpu, Row(what=name, value=wall, unit="ms by the clock", plain=bare[1] * 1e3)]
    return Found(plain=BARE, rows=tuple(rows))
