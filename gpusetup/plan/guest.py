"""The driver of a vGPU guest: from a file alone, and of a branch that the vGPU software of its host takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from gpusetup.matrix.vgpu import fitting
from gpusetup.model.plan import Refusal
from gpusetup.model.platforms import Cloud
from gpusetup.plan.given import given
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.settings import Settings

__all__ = ["brings_guest_driver", "guest_notes", "guest_refusals", "vgpu_refusal"]

_SHOWN = 4


def brings_guest_driver(settings: Settings) -> bool:
    """Tell whether the source is a guest driver's installer, or a cloud that has one."""
    file = given(settings.source)
    return settings.source in get_args(Cloud) or (file is not None and file.guest)


def guest_refusals(facts: HostFacts, settings: Settings, version: str, matrix: Matrix) -> Iterator[Refusal]:
    """Yield why this driver may not be put on this vGPU guest."""
    if not facts.vgpu_guest:
        return
    if not brings_guest_driver(settings):
        yield vgpu_refusal()
        return
    release = _release_of(version, matrix)
    if release is None:
        yield Refusal(
            reference="GS-354",
            message=f"driver branch {version.partition('.')[0]} belongs to no release of vGPU software that is known",
            hint="take a guest driver that belongs to the vGPU release of your host: gpusetup matrix vgpu",
        )
    elif settings.vgpu_host and release not in (fits := fitting(settings.vgpu_host.partition(".")[0], matrix)):
        drivers = [item for item in matrix.vgpu.releases if item.vgpu.partition(".")[0] in fits]
        drivers.sort(key=lambda item: nv(item.vgpu), reverse=True)
        newest = ", ".join(f"{item.guest} (vGPU {item.vgpu})" for item in drivers[:_SHOWN])
        yield Refusal(
            reference="GS-354",
            message=f"guest driver {version} is of vGPU {release}: hosts of vGPU {settings.vgpu_host} do not take it",
            note=f"that host takes guest drivers of vGPU {', '.join(fits)}",
            hint=f"take one of them, such as {newest}; all of them: gpusetup matrix vgpu",
            source="vgpu-host-takes-guest",
        )


def guest_notes(facts: HostFacts, settings: Settings) -> Iterator[str]:
    """Yield what a person should hear of a guest driver before it comes."""
    if not brings_guest_driver(settings):
        return
    if not facts.vgpu_guest:
        yield (
            "this is a vGPU guest driver, and the GPU here is no vGPU: it needs a licence all the same; use it only "
            "where your cloud says so"
        )
    elif not settings.vgpu_host:
        yield (
            "whether the host takes this guest driver is not known: set gpusetup_vgpu_host to the release of the "
            "host's vGPU software (of another one, the driver does not start: Xid 78)"
        )
    if not settings.vgpu_token:
        yield "NVIDIA licenses vGPU software: by your cloud, or by a token (gpusetup_vgpu_token)"


def vgpu_refusal() -> Refusal:
    """Return why a vGPU guest gets no driver from a repository."""
    return Refusal(
        reference="GS-323",
        message="the GPU is a vGPU, a share of a host's GPU; the data-centre driver does not work on it",
        note="a guest needs a vGPU guest driver from a branch that its host supports",
        hint="copy your vGPU administrator's guest driver to the host, and name it: "
        "gpusetup_source=/root/NVIDIA-Linux-x86_64-VERSION-grid.run; or your cloud's: gpusetup_source=azure, google "
        "or aws; one that is installed already is kept",
    )


def _release_of(version: str, matrix: Matrix) -> str | None:
    branch = nv(version).major
    return next((item.vgpu for item in matrix.vgpu.branches if item.branch == branch), None)
