"""What `gpusetup matrix` says when nothing is asked: drivers in support, newest toolkits, newest frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli.output import table
from gpusetup.resolve.domains import has_ended
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.release import DriverBranch

__all__ = ["overview_text"]

_KINDS = {"LTSB": "long-term", "PB": "production", "NFB": "new features"}


def overview_text(matrix: Matrix) -> str:
    """Return the overview."""
    return "\n".join((_drivers(matrix), _toolkits(matrix), _torch(matrix), _footer(matrix)))


def _drivers(matrix: Matrix) -> str:
    alive = [item for item in matrix.driver.branches if item.latest and not has_ended(item, matrix.date)]
    rows = [
        (
            f"R{branch.branch}",
            branch.latest or "",
            _KINDS.get(branch.kind, branch.kind),
            branch.eol,
            branch.cuda or "",
            _span(branch),
        )
        for branch in sorted(alive, key=lambda item: item.branch, reverse=True)
    ]
    return table(("branch", "newest", "kind", "until", "CUDA", "GPUs"), rows, title="Drivers in support")


def _span(branch: DriverBranch) -> str:
    return f"{branch.architectures[0]} - {branch.architectures[-1]}" if branch.architectures else ""


def _toolkits(matrix: Matrix) -> str:
    newest = {}
    for release in matrix.cuda.releases:
        if release.system and nv(release.minor) >= nv("11.8"):
            newest[release.minor] = release
    floors = {row.major: row.min_driver for row in matrix.cuda.majors}
    rows = [
        (item.version, f"R{item.driver_branch}", floors.get(nv(item.version).major, item.driver or ""))
        for item in sorted(newest.values(), key=lambda item: nv(item.version), reverse=True)[:12]
    ]
    return table(("toolkit", "its own driver", "runs from driver"), rows, title="CUDA toolkits")


def _torch(matrix: Matrix) -> str:
    builds: dict[str, list[str]] = {}
    for build in matrix.torch.builds:
        shown = f"{build.variant} (PyPI)" if build.default else build.variant
        builds.setdefault(build.version, []).append(shown)
    rows = []
    for release in sorted(matrix.torch.releases, key=lambda item: nv(item.version), reverse=True)[:8]:
        plain = [text for text in release.pythons if not text.endswith("t")]
        rows.append((release.version, ", ".join(builds.get(release.version, ())), f"{plain[0]} - {plain[-1]}"))
    return table(("torch", "builds", "Python"), rows, title="PyTorch")


def _footer(matrix: Matrix) -> str:
    return (
        f"matrix of {matrix.date}; tables: tensorflow, jax, cupy, cuda, cudnn, nccl, driver, os, python, vgpu,\n"
        f"gpu ({len(matrix.gpus.gpus)} of them)\n"
        "ask:  gpusetup matrix 'torch==2.6.*' --gpu v100     gpusetup matrix --driver 535.154.05\n"
        "      gpusetup resolve torch --gpu h100             gpusetup why-not cuda=13.1 --gpu v100\n"
    )
