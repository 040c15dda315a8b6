"""Build a container image of the .deb with buildah, as an OCI archive, and list its packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gpusetup import __version__
from gpusetup_fleet.supply.cyclonedx import component
from tools.release.tree import MACHINES, ROOT

BASE = "docker.io/library/debian:trixie-slim"
PYTHON = "3.13"
"""The Python of the base image."""
_LIST = ("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}\\n")


class Image(NamedTuple):
    """An image, and the distribution's packages in it."""

    path: Path
    packages: list[dict[str, Any]]


def build(package: Path, out: Path, base: str, *, moment: int) -> Image:
    """Build the image; every date in it is `moment`."""
    arch = package.stem.rpartition("_")[2]
    made = out / f"gpusetup-{__version__}-{MACHINES[arch]}.oci.tar"
    made.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        context, name = Path(folder), f"localhost/gpusetup-release:{os.getpid()}"
        shutil.copy(package, context)
        words = [
            "--timestamp",
            str(moment),
            "--arch",
            arch,
            "--build-arg",
            f"BASE={base}",
            "--build-arg",
            f"PACKAGE={package.name}",
        ]
        _buildah("build", "--quiet", *words, "--file", str(ROOT / "Containerfile"), "--tag", name, str(context))
        try:
            container = _buildah("from", "--pull-never", name)
            listed = _buildah("run", container, "--", *_LIST)
            _buildah("rm", container)
            _buildah("push", "--quiet", name, f"oci-archive:{made}:gpusetup:{__version__}")
        finally:
            _buildah("rmi", "--force", name)
    return Image(made, [_package(*line.split(" ")) for line in listed.splitlines() if not line.startswith("gpusetup ")])


def _package(name: str, version: str, arch: str) -> dict[str, Any]:
    return component(name, version, f"pkg:deb/debian/{quote(name)}@{quote(version, safe='~')}?arch={arch}")


def _buildah(*words: str) -> str:
    return subprocess.run(["buildah", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
