"""A bundle against `apt-get download` and `pip download` of the same files; a second one of what is there.

Debian's own driver stands for NVIDIA's packages: what is compared is fetching, proving and publishing, not a server.
The controller's wheels, which the plain tools do not fetch, are left out on both sides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from bench.found import Found, Row
from gpusetup.bootstrap.hashes import Target, hashes_of
from gpusetup.matrix.load import matrix
from gpusetup.model.package import Package
from gpusetup.model.request import Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.lock import lock_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.supply import site
from gpusetup_fleet.supply.apt_repository import AptRoot
from gpusetup_fleet.supply.choosing import Asked, Supply, wheels_of
from gpusetup_fleet.supply.fetching import sized
from gpusetup_fleet.supply.signing import signer

__all__ = ["main"]

BOUND, SECOND = 1.2, 0.25
PACKAGES = ("nvidia-driver", "nvidia-kernel-dkms", "linux-headers-amd64")
REPOSITORY = "compute/cuda/repos/debian12/x86_64"


def seconds(what: Callable[[], Any]) -> float:
    """Return how long something takes."""
    began = time.monotonic()
    what()
    return time.monotonic() - began


def main() -> Found:
    """Measure."""
    left_out = mock.patch.object(site, "controller_wheels", return_value=("", {}))
    with left_out, tempfile.TemporaryDirectory(prefix="gpusetup-bench-") as name:
        folder = Path(name)
        root = AptRoot(folder / "root", "debian12", "x86_64")
        root.refresh()
        packages = root.closure([Package(name=item) for item in PACKAGES])
        request = Request(requirements=(Requirement(component="cupy"),), gpus=("t4",), os="debian12", arch="x86_64")
        lock = lock_of(resolve(request, matrix()), matrix())
        target = Target("3.11", "x86_64", "2.36")
        hashes, full = hashes_of(lock.pip, target)
        wheels = tuple(sized(wheels_of(full.pylock, target)))
        asked = Asked(request, Settings())
        supply = Supply(asked, (lock,), REPOSITORY, packages, wheels, "3.11")
        key = signer("", folder / "k")
        names = [f"{item.name}={item.version}" for item in packages]
        options = [piece for option in root.options for piece in ("-o", option)]

        def by_tools() -> None:
            for part in ("debs", "wheels"):
                (folder / part).mkdir(exist_ok=True)
            argv = ["apt-get", *options, "-qq", "download", *names]
            subprocess.run(argv, cwd=folder / "debs", check=True, capture_output=True)
            lines = folder / "requirements.txt"
            lines.write_text("\n".join(hashes.wheels) + "\n")
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--require-hashes"]
            subprocess.run([*pip, "-r", str(lines), "-d", str(folder / "wheels")], check=True, env=os.environ)

        def by_us() -> None:
            site.add_system(folder / "site", supply, key, lambda _done, _whole: None)

        size = sum(item.size for item in supply.files()) / 1e6
        print(f"{len(packages)} packages and {len(wheels)} wheels, {size:.0f} MB")
        plain, ours, again = seconds(by_tools), seconds(by_us), seconds(by_us)
    return Found(
        plain="apt-get download and pip download",
        rows=(
            Row(what=f"the bundle, {size:.0f} MB", value=ours, unit="s", plain=plain, bound=BOUND, of="ratio"),
            Row(what="once more, all there", value=again, unit="s", plain=plain, bound=SECOND, of="ratio"),
        ),
    )
