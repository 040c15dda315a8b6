"""Moments in the life of a lab host that tests and faults wait for, read from the files that a step itself writes."""

import contextlib
import json

from tests.lab.host import Host

JOBS = "/var/lib/gpusetup/jobs"


def package_step(host: Host) -> str:
    """How far the newest package job is, in its own word; "" when it has said none. A job tells it in `progress.json`."""
    told: list[tuple[float, str]] = []
    for path in host.path(JOBS).glob("packages-*/progress.json"):
        with contextlib.suppress(OSError, ValueError):
            progress = json.loads(path.read_text())
            told.append((progress["updated"], progress["step"]))
    return max(told, default=(0.0, ""))[1]


def installing(host: Host) -> bool:
    return package_step(host) == "install"
