"""Resolving in process: median, the worst of 1,000 random requests, 10,000 hosts in 50 classes, memory.

Times are processor time of this process (it never waits), so that other programs on the machine count less.
"""

from __future__ import annotations

import random
import resource
import statistics
import time

from bench.found import Found, Row
from gpusetup.errors import BadInputError, NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements

REQUESTS, HOSTS, CLASSES = 1000, 10_000, 50
MEDIAN_MS, WORST_MS, FLEET_S, MEMORY_MB = 5, 50, 2, 60
WISHES = (
    "torch", "torch==2.6.*", "torch>=2.4", "torch==2.7.1+cu128", "tensorflow", "tensorflow==2.15.*", "jax", "jax<0.5",
    "cupy", "cuda", "cuda==12.4.*", "cuda>=12.8", "cudnn", "cudnn~=9.1", "nccl", "driver==580.*", "driver>=570",
    "python==3.11", "python==3.8",
)  # fmt: skip
SYSTEMS = (None, "ubuntu22.04", "ubuntu24.04", "debian12", "rocky9", "rhel8", "amzn2023")


def random_requests(matrix: Matrix, count: int, seed: int = 20261120) -> list[Request]:
    """Return random but plausible requests; the seed is fixed."""
    dice = random.Random(seed)
    ids = [pci_id for gpu in matrix.gpus.gpus for pci_id in gpu.ids]
    drivers = [item.version for item in matrix.driver.versions if item.platform == "linux" and item.branch >= 470]
    made = []
    for _ in range(count):
        wishes = dice.sample(WISHES, dice.choice((0, 1, 1, 1, 2, 3)))
        made.append(
            Request(
                requirements=parse_requirements(wishes),
                gpus=tuple(dice.sample(ids, dice.choice((0, 1, 1, 1, 2)))),
                gpu_count=dice.choice((0, 1, 8)),
                os=dice.choice(SYSTEMS),
                driver=dice.choice((None, None, None, dice.choice(drivers))),
                installed_driver=dice.choice((None, None, dice.choice(drivers))),
                native=dice.random() < 0.1,
                forward=dice.random() < 0.1,
            )
        )
    return made


def timed(request: Request, matrix: Matrix) -> tuple[float, bool]:
    """Return the milliseconds of an answer, and whether it is a stack."""
    began = time.process_time()
    try:
        resolve(request, matrix)
    except (NoStackError, BadInputError):
        return (time.process_time() - began) * 1e3, False
    return (time.process_time() - began) * 1e3, True


def fleet(matrix: Matrix) -> float:
    """Return the time for a fleet: hosts grouped into classes, one resolve per class."""
    kinds = random_requests(matrix, CLASSES, seed=7)
    hosts = [kinds[number % CLASSES] for number in range(HOSTS)]
    began = time.process_time()
    answers: dict[Request, bool] = {}
    for host in hosts:
        if host not in answers:
            answers[host] = timed(host, matrix)[1]
    assert len([answers[host] for host in hosts]) == HOSTS
    return time.process_time() - began


def main() -> Found:
    """Measure."""
    matrix = Matrix()
    for _ in matrix.files():
        pass
    resolve(Request(), matrix)
    rounds = [[timed(request, matrix) for request in random_requests(matrix, REQUESTS)] for _ in range(3)]
    # Three rounds: the first one also fills caches; the fastest time of each request counts.
    first = [run[0] for run in rounds[0]]
    best = [min(runs)[0] for runs in zip(*rounds, strict=True)]
    fitting = [ms for ms, (_, fits) in zip(best, rounds[0], strict=True) if fits]
    seconds = fleet(Matrix())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = (
        Row(what=f"median of {len(fitting)} stacks", value=statistics.median(fitting), unit="ms", bound=MEDIAN_MS),
        Row(what=f"median of {REQUESTS} requests", value=statistics.median(best), unit="ms", bound=MEDIAN_MS),
        Row(what=f"worst of {REQUESTS} requests", value=max(best), unit="ms", bound=WORST_MS),
        Row(what=f"{HOSTS:,} hosts in {CLASSES} classes", value=seconds, unit="s", bound=FLEET_S),
        Row(what="memory at the end", value=memory, unit="MB", bound=MEMORY_MB),
        Row(what="first round alone, median", value=statistics.median(first), unit="ms"),
        Row(what="first round alone, worst", value=max(first), unit="ms"),
    )
    return Found(rows=rows)
