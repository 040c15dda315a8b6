"""vGPU software: which guest drivers a host takes, and where clouds keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.platforms import CloudFile
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.platforms import VgpuCloud

__all__ = ["files_of", "fitting", "hosts_that_take"]


def fitting(host: str, matrix: Matrix) -> tuple[str, ...]:
    """Return the vGPU releases whose guest drivers a host of this release takes, the newest first.

    Its own, the one before, and on a long-term support branch the long-term support branch before.
    """
    branches = {int(item.vgpu): item.branch for item in matrix.vgpu.branches}
    lasting = {item.branch for item in matrix.driver.branches if item.kind == "LTSB"}
    own = int(host)
    found = {own, own - 1} & set(branches)
    if branches.get(own) in lasting:
        found |= {max((item for item, branch in branches.items() if item < own and branch in lasting), default=own)}
    return tuple(str(item) for item in sorted(found, reverse=True))


def hosts_that_take(guest: str, matrix: Matrix) -> tuple[str, ...]:
    """Return the vGPU releases of hosts that take a guest driver of this release, the newest first."""
    hosts = sorted((item.vgpu for item in matrix.vgpu.branches), key=int, reverse=True)
    return tuple(host for host in hosts if guest in fitting(host, matrix))


def files_of(cloud: VgpuCloud, matrix: Matrix) -> tuple[CloudFile, ...]:
    """Return the guest drivers that a cloud is known to offer, the newest first."""
    guests = {item.vgpu: item.guest for item in matrix.vgpu.releases}
    by_pattern = (
        CloudFile(vgpu=release, url=cloud.pattern.format(vgpu=release, guest=guests[release]))
        for release in cloud.releases
    )
    return tuple(sorted((*cloud.files, *by_pattern), key=lambda item: nv(item.vgpu), reverse=True))
