"""The licence of a vGPU guest: what it lacks, and where none can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.model.plan import Action, Refusal
from gpusetup.plan import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.model.facts import HostFacts
    from gpusetup.model.settings import Settings

__all__ = ["licence_action", "licence_refusals"]


def licence_refusals(facts: HostFacts, settings: Settings) -> tuple[Refusal, ...]:
    """Return why this host can use no licence; nothing where it can, or where none is asked for."""
    if not settings.vgpu_token or "gridd" in facts.services:
        return ()
    refusal = Refusal(
        reference="GS-434",
        message="gpusetup_vgpu_token is set, but nvidia-gridd, which uses it, is missing",
        note="only vGPU guest drivers bring it; drivers from NVIDIA's repositories and distributions do not",
        hint="install the guest driver from your cloud or vGPU administrator first, or unset gpusetup_vgpu_token",
    )
    return (refusal,)


def licence_action(facts: HostFacts, settings: Settings) -> Iterator[Action]:
    """Yield the action that licenses the vGPU, where something is not as it should be."""
    if not settings.vgpu_token:
        return
    there = msgspec.to_builtins(facts.licence)
    why = judge.licence.lacking(there, settings.vgpu_token_sha256, settings.vgpu_feature)
    if why:
        what = f"license the vGPU ({settings.vgpu_feature}) with the token {settings.vgpu_token.rpartition('/')[2]}"
        yield Action(id="file-vgpu-licence", kind="file", what=what, why=why, reboot=False)
