"""What has to go, come back and be freed so that a host is as it was before the first apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.lifecycle import Removal
from gpusetup.plan.judge import gpudirect, versions

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts

__all__ = ["pending_reboot", "removal_of"]


def removal_of(facts: HostFacts) -> Removal | None:
    """Return what the record says is to be undone; None for a host without a record."""
    state = facts.state
    if state is None:
        return None
    installed = facts.packages.installed
    back = state.taken | {name: old for name, old in state.moved.items() if name in installed}
    brought = {there for item in state.brought.items() for there in versions.places(installed, *item)}
    deleted = tuple(sorted(path for path, entry in state.files.items() if entry.original is None))
    python = state.expect.python
    return Removal(
        packages=tuple(sorted(brought)),
        restored=tuple(f"{name}={back[name]}" for name in sorted(back)),
        files_deleted=deleted,
        files_restored=tuple(sorted(path for path in state.files if path not in deleted)),
        links=tuple(sorted(state.links)),
        holds=state.holds,
        services=tuple(sorted(state.services)),
        arguments=state.arguments,
        mig=tuple(sorted(state.mig.found)),
        initramfs=any("nouveau" in path or path == gpudirect.OPTIONS for path in state.files),
        python=python.path or "" if python is not None and not python.adopted else "",
        environments=tuple(item.path for item in state.expect.environments if item.path),
        history="/var/lib/gpusetup",
    )


def pending_reboot(facts: HostFacts, removal: Removal) -> str:
    """Say why the host still runs something that is no longer on its disk."""
    loaded = facts.driver.loaded if facts.driver is not None else None
    if loaded is not None and (removal.packages or removal.restored):
        return f"nvidia {loaded.version} stays loaded until the host reboots"
    return ""
