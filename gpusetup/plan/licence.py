"""The licence of a vGPU guest: what it lacks, and where none can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.errors import PreflightError
from gpusetup.model.plan import Action, Refusal
from gpusetup.plan import judge
from gpusetup.plan.guest import brings_guest_driver
from gpusetup.plan.recorded import record_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.model.applied import Applied
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.settings import Settings

__all__ = ["licence_action", "licence_given_up", "licence_refusals", "with_recorded_token"]


def licence_refusals(facts: HostFacts, settings: Settings) -> tuple[Refusal, ...]:
    """Return why this host can use no licence; nothing where it can, or where none is asked for."""
    if not settings.vgpu_token or "gridd" in facts.services or brings_guest_driver(settings):
        return ()
    refusal = Refusal(
        reference="GS-434",
        message="gpusetup_vgpu_token is set, but nvidia-gridd, which uses it, is missing",
        note="only vGPU guest drivers bring it; drivers from NVIDIA's repositories and distributions do not",
        hint="install the guest driver from your cloud or vGPU administrator first, or unset gpusetup_vgpu_token",
    )
    return (refusal,)


def licence_given_up(facts: HostFacts, settings: Settings) -> bool:
    """Tell whether an earlier apply licensed the vGPU and nobody asks for that any more."""
    name = "/" + judge.licence.TOKEN
    return not settings.vgpu_token and any(path.endswith(name) for path in record_of(facts).files)


def with_recorded_token(lock: Applied, settings: Settings) -> Applied:
    """Return the lock with today's path of its token; refuse where that file is another token by now."""
    wanted = lock.wanted
    kept = wanted.settings if wanted is not None else UNSET
    if wanted is None or kept is UNSET or not kept.vgpu_token:
        return lock
    if kept.vgpu_token_sha256 != settings.vgpu_token_sha256:
        raise PreflightError(
            "GS-816",
            f"that apply licensed the vGPU with another token, {kept.vgpu_token} at that time",
            note=f"gpusetup keeps no token; its SHA-256 is {kept.vgpu_token_sha256}",
            hint="name the file that has it: -e gpusetup_vgpu_token=PATH",
        )
    return replace(lock, wanted=replace(wanted, settings=replace(kept, vgpu_token=settings.vgpu_token)))


def licence_action(facts: HostFacts, settings: Settings) -> Iterator[Action]:
    """Yield the action that licenses the vGPU, where something is not as it should be."""
    if licence_given_up(facts, settings):
        why = "gpusetup_vgpu_token asks for it no more"
        yield Action(id="file-vgpu-licence", kind="file", what="no longer license the vGPU", why=why, reboot=False)
    if not settings.vgpu_token:
        return
    there = msgspec.to_builtins(facts.licence)
    why = judge.licence.lacking(there, settings.vgpu_token_sha256, settings.vgpu_feature)
    if why:
        what = f"license the vGPU ({settings.vgpu_feature}) with the token {settings.vgpu_token.rpartition('/')[2]}"
        yield Action(id="file-vgpu-licence", kind="file", what=what, why=why, reboot=False)
