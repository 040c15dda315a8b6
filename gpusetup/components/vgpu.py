"""vGPU guests: a driver from a file or a cloud, of a release that the vGPU host accepts, and the licence."""

import re
from collections.abc import Iterator
from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import Component, Wanted, action, working_driver
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import choice, file_source, path, wrong
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.systems import files_of, fitting
from gpusetup.model.applied import Applied
from gpusetup.model.facts import HostFacts
from gpusetup.model.plan import Action, Refusal
from gpusetup.model.platforms import Cloud, CloudFile, VgpuCloud
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings, VgpuFeature
from gpusetup.resolve.domains import matches
from gpusetup.versions import nv

_SHOWN = 4


def brings_guest_driver(settings: Settings) -> bool:
    """Return whether the source is a guest driver's installer, or a cloud that provides one."""
    file = file_source(settings.source)
    return settings.source in get_args(Cloud) or (file is not None and file.guest)


def guest_refusals(facts: HostFacts, settings: Settings, version: str, matrix: Matrix) -> Iterator[Refusal]:
    """Yield why this driver must not be installed on this vGPU guest."""
    if not facts.vgpu_guest:
        return
    if not brings_guest_driver(settings):
        yield vgpu_refusal()
        return
    release = next((item.vgpu for item in matrix.vgpu.branches if item.branch == nv(version).major), None)
    if release is None:
        yield Refusal(
            reference="GS-354",
            message=f"driver branch {version.partition('.')[0]} belongs to no known release of vGPU software",
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
    """Yield warnings about a guest driver before it is installed."""
    if not brings_guest_driver(settings):
        return
    if not facts.vgpu_guest:
        yield (
            "this is a vGPU guest driver, and the GPU here is not a vGPU: the driver still needs a licence; use it "
            "only if your cloud recommends it"
        )
    elif not settings.vgpu_host:
        yield (
            "whether the host takes this guest driver is not known: set gpusetup_vgpu_host to the release of the "
            "host's vGPU software (of another one, the driver does not start: Xid 78)"
        )
    if not settings.vgpu_token:
        yield "NVIDIA licenses vGPU software: by your cloud, or by a token (gpusetup_vgpu_token)"


def vgpu_refusal() -> Refusal:
    """Return the refusal of a repository's driver on a vGPU guest."""
    return Refusal(
        reference="GS-323",
        message="the GPU is a vGPU, a share of a host's GPU; the data-centre driver does not work on it",
        note="a guest needs a vGPU guest driver from a branch that its host supports",
        hint="copy your vGPU administrator's guest driver to the host, and name it: "
        "gpusetup_source=/root/NVIDIA-Linux-x86_64-VERSION-grid.run; or your cloud's: gpusetup_source=azure, google "
        "or aws; one that is installed already is kept",
    )


def with_cloud_driver(facts: HostFacts, settings: Settings, matrix: Matrix) -> Settings:
    """Return the settings with the URL of a cloud's guest driver as source instead of the cloud's name.

    A working guest driver that fits is kept; the source is then that driver's own URL, or `distro`.
    """
    cloud = next((item for item in matrix.vgpu.clouds if item.cloud == settings.source), None)
    if cloud is None:
        return settings
    wish = next((item for item in settings.requirements if item.component == "driver"), None)
    files = {_version(file): file for file in reversed(files_of(cloud, matrix))}
    there = None if settings.upgrade else working_driver(facts)
    if there is not None and (wish is None or matches(wish, [there])):
        kept = files.get(there)
        return replace(settings, source=kept.url if kept else "distro")
    if cloud.installed_by:
        raise PreflightError(
            "GS-356",
            f"{cloud.name} does not publish its guest driver as a file",
            note=f"it is installed by {cloud.installed_by}",
            hint="install it that way first; gpusetup keeps it, and adds matching libraries",
        )
    file = _chosen(cloud, files, wish, settings.vgpu_host, matrix)
    return replace(settings, source=file.url, source_sha256=settings.source_sha256 or file.sha256)


def _chosen(
    cloud: VgpuCloud, files: dict[str, CloudFile], wish: Requirement | None, host: str, matrix: Matrix
) -> CloudFile:
    """Return the newest file that fits request and vGPU host; if neither limits it, the cloud's default release."""
    takes = fitting(host.partition(".")[0], matrix) if host else None
    fit = [file for file in files.values() if takes is None or file.vgpu.partition(".")[0] in takes]
    asked = wish is not None and bool(wish.specifier or wish.latest)
    if wish is not None:
        wanted = set(matches(wish, [_version(file) for file in fit]))
        fit = [file for file in fit if _version(file) in wanted]
    if not fit:
        raise PreflightError(
            "GS-356",
            f"{cloud.name} is not known to offer the requested guest driver"
            + (f" and that a host of vGPU {host} takes" if host else ""),
            note="known: " + ", ".join(f"{version} (vGPU {file.vgpu})" for version, file in reversed(files.items())),
            hint="ask for one of them, or name a newer one by its address: gpusetup_source=https://….run",
        )
    if not asked and takes is None and cloud.default is not None:
        fit = [file for file in fit if file.vgpu == cloud.default] or fit
    return max(fit, key=lambda file: nv(file.vgpu))


def _version(file: CloudFile) -> str:
    found = file_source(file.url)
    return found.version if found is not None else ""


def _refusals(facts: HostFacts, settings: Settings) -> tuple[Refusal, ...]:
    """Return the refusal of a licence token on a host without nvidia-gridd, unless the new driver brings it."""
    if not settings.vgpu_token or "gridd" in facts.services or brings_guest_driver(settings):
        return ()
    refusal = Refusal(
        reference="GS-434",
        message="gpusetup_vgpu_token is set, but nvidia-gridd, which uses it, is missing",
        note="only vGPU guest drivers bring it; drivers from NVIDIA's repositories and distributions do not",
        hint="install the guest driver from your cloud or vGPU administrator first, or unset gpusetup_vgpu_token",
    )
    return (refusal,)


def _license_unwanted(facts: HostFacts, settings: Settings) -> bool:
    """Return whether an earlier apply licensed the vGPU and no token is set now."""
    name = "/" + judge.licence.TOKEN
    return not settings.vgpu_token and any(path.endswith(name) for path in record_of(facts).files)


def with_recorded_token(lock: Applied, settings: Settings) -> Applied:
    """Return the lock with today's path of its token; raise if that file is now another token."""
    wanted = lock.wanted
    if wanted is None or not wanted.settings.vgpu_token:
        return lock
    kept = wanted.settings
    if kept.vgpu_token_sha256 != settings.vgpu_token_sha256:
        raise PreflightError(
            "GS-816",
            f"that apply licensed the vGPU with another token, {kept.vgpu_token} at that time",
            note=f"gpusetup keeps no token; its SHA-256 is {kept.vgpu_token_sha256}",
        )
    return replace(lock, wanted=replace(wanted, settings=replace(kept, vgpu_token=settings.vgpu_token)))


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the action that licenses the vGPU, or gives its licence up, if anything differs."""
    settings = wanted.settings
    if _license_unwanted(host.facts, settings):
        why = "gpusetup_vgpu_token is no longer set"
        yield action("file", "vgpu-licence", "no longer license the vGPU", why)
    if not settings.vgpu_token:
        return
    why = judge.licence.lacking(host.probed["licence"], settings.vgpu_token_sha256, settings.vgpu_feature)
    if why:
        what = f"license the vGPU ({settings.vgpu_feature}) with the token {settings.vgpu_token.rpartition('/')[2]}"
        yield action("file", "vgpu-licence", what, why)


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    settings = wanted.settings
    return {
        "gpu_licence_token": settings.vgpu_token or UNSET,
        "gpu_licence_feature": settings.vgpu_feature if settings.vgpu_token else UNSET,
        "gpu_licence_give_up": _license_unwanted(facts, settings) or UNSET,
    }


def _release(value: Any, label: str) -> str:
    text = str(value).strip()
    if not re.fullmatch(r"[0-9]{2}(\.[0-9]+)?", text):
        raise wrong(label, value, "a release of vGPU software: 19 or 19.4 (gpusetup matrix vgpu lists them)")
    return text


VGPU = Component(
    name="vgpu",
    settings={"vgpu_host": _release, "vgpu_token": path, "vgpu_feature": choice(*get_args(VgpuFeature))},
    refusals=_refusals,
    actions=_actions,
    variables=_variables,
)
